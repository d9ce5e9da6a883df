"""Configurations that travel to workers: complete, unexpanded, and without secrets."""

from pathlib import Path

import pytest

from kip30 import ConfigError, UsageError
from kip30.pipeline.spark.worker_config import shipped_config
from kip30.pipeline.stores.config import StoreConfig
from kip30.runtime.resolution import resolve

SECRET = "geheim-canary"  # noqa: S105


def write(folder: Path, *lines: str) -> StoreConfig:
    file = folder / "server.properties"
    file.write_text("".join(f"{line}\n" for line in lines))
    return StoreConfig.of_file(file)


def settings(config: StoreConfig) -> dict[str, str]:
    return dict(config.settings or ())


def test_a_file_travels_as_its_path(tmp_path: Path) -> None:
    config = write(tmp_path, "plugin.backend=embedded", f"plugin.embedded.directory={tmp_path}")
    assert StoreConfig.parse(config.text()) == config
    assert str(tmp_path / "server.properties") in config.text()
    assert config.resolve().choice.backend.name == "embedded"


def test_settings_travel_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(
        tmp_path,
        "plugin.backend = etcd",
        "plugin.etcd.user = root",
        "plugin.etcd.password = ${env:PIPE_PASSWORD}",
        "plugin.namespace = a b=ü",
    )
    monkeypatch.setenv("PIPE_PASSWORD", SECRET)
    shipped = config.shipped()
    assert settings(shipped) == {
        "plugin.backend": "etcd",
        "plugin.etcd.user": "root",
        "plugin.etcd.password": "${env:PIPE_PASSWORD}",
        "plugin.namespace": "a b=ü",
    }
    assert "\n" not in shipped.text()
    assert SECRET not in f"{shipped!r}{shipped.text()}"
    again = StoreConfig.parse(shipped.text())
    assert again == shipped == shipped.shipped()
    assert again.resolve().settings.password.current() == SECRET


def test_relative_paths_mean_for_the_receiver_what_they_mean_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text(SECRET)
    config = write(
        tmp_path,
        "plugin.backend=etcd",
        "plugin.etcd.user=root",
        "plugin.etcd.password=${file:password}",
        "plugin.etcd.tls.ca=ca.pem",
        "plugin.etcd.tls.cert=${env:PIPE_CERTIFICATE}",
        "plugin.etcd.tls.key=${env:PIPE_CERTIFICATE}",
    )
    monkeypatch.setenv("PIPE_CERTIFICATE", "cert.pem")
    received = StoreConfig.parse(config.shipped().text())
    monkeypatch.chdir("/")
    settings = received.resolve().settings
    assert settings == config.resolve().settings
    assert settings.password.current() == SECRET
    assert settings.tls_ca == tmp_path / "ca.pem"


@pytest.mark.parametrize("line", ["plugin.consul.tls.ca=ca.pem", "plugin.consul.token=${file:p}"])
def test_no_relative_path_travels_to_another_machine(tmp_path: Path, line: str) -> None:
    (tmp_path / "p").write_text(SECRET)
    config = write(tmp_path, "plugin.backend=consul", line)
    with pytest.raises(UsageError, match="is a relative path"):
        shipped_config(config)


def test_a_reference_is_the_receivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(
        tmp_path,
        "plugin.backend=etcd",
        "plugin.etcd.user=root",
        "plugin.etcd.password=${env:PIPE_PASSWORD}",
    )
    monkeypatch.setenv("PIPE_PASSWORD", SECRET)
    received = StoreConfig.parse(config.shipped().text())
    monkeypatch.delenv("PIPE_PASSWORD")
    with pytest.raises(ConfigError, match="PIPE_PASSWORD is not set"):
        received.resolve()


@pytest.mark.parametrize(
    ("backend", "key"),
    [
        ("etcd", "plugin.etcd.password"),
        ("consul", "plugin.consul.token"),
        ("cassandra", "plugin.cassandra.password"),
        ("zookeeper", "plugin.zookeeper.digest.password"),
    ],
)
@pytest.mark.parametrize("secret", [SECRET, f"{SECRET}${{env:HOME}}", f"${{env:HOME}}{SECRET}"])
def test_a_secret_that_is_written_out_stays(
    tmp_path: Path, backend: str, key: str, secret: str
) -> None:
    user = [f"{key.removesuffix('password')}user=root"] if key.endswith("password") else []
    lines = [f"plugin.backend={backend}", "zookeeper.connect=h:1", *user]
    config = write(tmp_path, *lines, f"{key}={secret}")
    with pytest.raises(ConfigError) as caught:
        config.shipped()
    message = str(caught.value)
    assert message.startswith(f"{key} (")
    assert "write ${env:NAME} or ${file:/path}" in message
    assert SECRET not in message


def test_secrets_of_other_stores_stay(tmp_path: Path) -> None:
    """One file may serve several stores."""
    config = write(
        tmp_path,
        "plugin.backend=embedded",
        f"plugin.embedded.directory={tmp_path}",
        f"plugin.consul.token={SECRET}",
        f"consul.token={SECRET}",
        f"plugin.cassandra.password={SECRET}",
    )
    shipped = config.shipped()
    assert SECRET not in shipped.text()
    assert settings(shipped).keys() == {"plugin.backend", "plugin.embedded.directory"}


def test_a_kafka_file(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        "broker.id=7",
        "zookeeper.connect=127.0.0.1:2181/kafka",
        f"ssl.keystore.password={SECRET}",
        f"listener.name.x.sasl.jaas.config=login password={SECRET}",
    )
    shipped = config.shipped()
    assert settings(shipped) == {"zookeeper.connect": "127.0.0.1:2181/kafka"}
    before, after = config.resolve(), StoreConfig.parse(shipped.text()).resolve()
    assert before.choice.backend is after.choice.backend
    assert before.settings == after.settings


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", "null", "{}", '{"settings": 1}', '{"file": 1}', "[" * 100_000]
)
def test_an_invalid_configuration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no configuration"):
        StoreConfig.parse(text)


def test_a_text_that_is_wrong_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        StoreConfig.parse(f'{{"settings": "{SECRET}"')
    assert SECRET not in f"{caught.value!r}{caught.value.__context__!r}"


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties"):
        StoreConfig.of_file(tmp_path / "none.properties").properties()


def test_a_file_is_read_when_it_is_used(tmp_path: Path) -> None:
    config = write(tmp_path, "plugin.backend=embedded")
    write(tmp_path, "plugin.backend=embedded", "plugin.namespace=later")
    assert resolve(config.properties()).context.namespace == "later"
