"""What arguments of jobs name, and what of a configuration travels."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kip30.config import load, setting, shippable, text
from kip30.errors import ConfigError, InvalidNameError, UnsupportedError, UsageError
from kip30.pipeline.endpoints import (
    SnapshotEndpoint,
    StoreEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)
from kip30.pipeline.store_config import StoreConfig
from kip30.scanning import Layout
from kip30_backends.embedded import EmbeddedBackend

SECRET = "geheim-7"  # noqa: S105  none


@dataclass(frozen=True, kw_only=True)
class Settings:
    password: str = setting("plugin.x.password", text, doc="A password.", secret=True)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.properties").write_text("plugin.backend=embedded\nplugin.embedded.directory=x\n")
    Path("taken").mkdir()
    Path("taken", "manifest.json").write_text("{}")
    Path("folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "layout", "under"),
    [
        ("a.properties", Layout.KIP30, ""),
        ("a.properties#n/m", Layout.KIP30, "n/m"),
        ("raw:a.properties", Layout.RAW, ""),
        ("raw:a.properties#/config/", Layout.RAW, "/config/"),
    ],
)
def test_a_store(here: Path, name: str, layout: Layout, under: str) -> None:
    found = parse_endpoint(name)
    config = StoreConfig(file=here / "a.properties")
    assert found == StoreEndpoint(name, config, layout, under)
    assert store_endpoint(found).view(here).scratch == here


def test_a_snapshot() -> None:
    found = parse_endpoint("taken#n")
    assert found == SnapshotEndpoint("taken#n", Path("taken"), "n")
    for wanted in (store_endpoint, target_endpoint):
        with pytest.raises(UsageError, match="taken#n is a snapshot"):
            wanted(found)


def test_the_store_of_the_command_line() -> None:
    chosen = StoreConfig(settings=(("plugin.backend", "embedded"),))
    found = parse_endpoint("raw:-#k", chosen)
    assert found == StoreEndpoint("raw:-#k", chosen, Layout.RAW, "k")
    with pytest.raises(UsageError, match="no store is chosen"):
        parse_endpoint("-")


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("nothing.properties", UsageError, "no file or folder 'nothing.properties'"),
        ("folder", UsageError, "has no manifest.json"),
        ("raw:taken", UsageError, "knows its layout"),
        ("a.properties#/n", InvalidNameError, "starts with '/'"),
        ("a.properties#n/", InvalidNameError, "trailing slash"),
    ],
)
def test_what_is_no_endpoint(name: str, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        parse_endpoint(name)


def test_a_raw_endpoint_is_no_target() -> None:
    with pytest.raises(UnsupportedError, match="can be read and not written"):
        target_endpoint(parse_endpoint("raw:a.properties"))


def test_a_configuration_travels_as_it_is_written(here: Path) -> None:
    Path("b.properties").write_text(
        "plugin.backend=embedded\nplugin.embedded.directory=${env:KIP30_NOT_SET}\n"
    )
    config = StoreConfig.of_file(Path("b.properties"))
    assert StoreConfig.parse(config.text()) == config == StoreConfig(file=here / "b.properties")
    properties = load({"plugin.backend": "embedded", "plugin.namespace": "${env:HOME}"})
    assert shippable(properties, EmbeddedBackend.settings_class) == {
        "plugin.backend": "embedded",
        "plugin.namespace": "${env:HOME}",
    }


def test_a_shipped_configuration_opens_the_same_store(here: Path) -> None:
    shipped = StoreConfig.of_file(Path("a.properties")).shipped()
    assert shipped.file is None
    assert StoreConfig.parse(shipped.text()) == shipped
    assert shipped.shipped() is shipped
    for config in (shipped, StoreConfig.of_file(here / "a.properties")):
        assert config.resolve().choice.backend is EmbeddedBackend
        assert config.resolve().settings.directory == Path("x")


def test_keys_of_another_program_stay_behind(here: Path) -> None:
    file = here / "server.properties"
    file.write_text(
        "broker.id=1\nlog.dirs=/x\nzookeeper.connect=h:1\nplugin.backend=embedded\n"
        "plugin.embedded.directory=y\n"
    )
    properties = load(file)
    assert shippable(properties, EmbeddedBackend.settings_class).keys() == {
        "plugin.backend",
        "plugin.embedded.directory",
    }


def test_a_secret_that_is_written_out_stays_here() -> None:
    for written in ("${env:P}", "${file:/p}"):
        assert shippable(load({"plugin.x.password": written}), Settings)
    with pytest.raises(ConfigError, match=r"plugin\.x\.password .*\$\{env:NAME\}") as caught:
        shippable(load({"plugin.x.password": SECRET}), Settings)
    assert SECRET not in str(caught.value)
    config = StoreConfig(settings=(("plugin.x.password", SECRET),))
    assert SECRET not in repr(config.properties())
