import pytest

from kip30.cli._exit_codes import Status

from .shell import Shell

VAULT = """
from dataclasses import dataclass
from kip30.config import setting, text
from kip30.driver import Backend

@dataclass(frozen=True, kw_only=True)
class VaultSettings:
    address: str = setting("plugin.vault.address", text, doc="Where it is")
    password: str | None = setting(
        "plugin.vault.password",
        text,
        default=None,
        secret=True,
        aliases=("vault.secret",),
        doc="Its key",
    )

class Vault(Backend):
    name = "vault"
    settings_class = VaultSettings
    capabilities = frozenset()
    def __init__(self, context, settings): raise RuntimeError(f"the secret is {settings.password}")
    def describe(self): return {}
    def close(self): pass
"""


@pytest.fixture
def vault(shell: Shell) -> Shell:
    """A shell configured for a store that has secrets and tells them to everyone."""
    (shell.folder / "vault.py").write_text(VAULT)
    shell.write(
        {
            "plugin.locator.classname": "vault:Vault",
            "plugin.additional.paths": shell.folder,
            "plugin.vault.address": "here",
            "plugin.vault.password": "hunter2",
        }
    )
    return shell


def test_the_reference_has_every_setting_of_every_installed_store(shell: Shell) -> None:
    told = shell("config").stdout
    for key in ("plugin.backend", "plugin.session.timeout.ms", "plugin.embedded.directory"):
        assert key in told
    rows = {row["key"]: row for row in shell.json("config")}
    assert rows["plugin.namespace"]["default"] == "kip30"
    assert not rows["plugin.namespace"]["required"]


def test_effective_settings_are_printed_with_their_origin(shell: Shell) -> None:
    words = ("config", "--effective", "--set", "plugin.namespace=mine")
    rows = {row["key"]: (row["value"], row["origin"]) for row in shell.json(*words)}
    assert rows["plugin.namespace"] == ("mine", "--set")
    assert rows["plugin.connect.timeout.ms"] == (10_000, "default")
    assert rows["plugin.backend"] == ("embedded", f"{shell.properties}:1")
    session_ms = rows["plugin.session.timeout.ms"][0]
    assert rows["plugin.operation.timeout.ms"][0] == min(5000, session_ms)
    assert rows["plugin.lease.margin.ms"][0] == session_ms // 10


def test_the_effective_default_directory_is_printed_in_full(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.write({"plugin.backend": "embedded"})
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    rows = {row["key"]: row["value"] for row in shell.json("config", "--effective")}
    assert rows["plugin.embedded.directory"] == "/somewhere/kip30"


def test_a_store_set_by_its_class_is_printed_by_name_with_its_origin(shell: Shell) -> None:
    shell.write({"plugin.locator.classname": "kip30_backends.embedded:EmbeddedBackend"})
    rows = {row["key"]: row for row in shell.json("config", "--effective")}
    assert rows["plugin.backend"]["value"] == "embedded"
    origin = f"plugin.locator.classname ({shell.properties}:1)"
    assert rows["plugin.backend"]["origin"] == origin


def test_a_secret_is_shown_nowhere(vault: Shell) -> None:
    for words in (("config", "--effective"), ("config",), ("kv", "get", "a"), ("doctor",)):
        assert "hunter2" not in vault(*words).output
    words = ("config", "--effective", "--load-plugins")
    assert "hunter2" not in vault(*words).output
    rows = {row["key"]: row["value"] for row in vault.json(*words)}
    assert rows["plugin.vault.password"] == "***"
    assert rows["plugin.vault.address"] == "here"


def test_a_secret_under_an_alias_has_its_origin(vault: Shell) -> None:
    vault.write(
        {
            "plugin.locator.classname": "vault:Vault",
            "plugin.additional.paths": vault.folder,
            "plugin.vault.address": "here",
            "vault.secret": "hunter2",
        }
    )
    rows = {row["key"]: row for row in vault.json("config", "--effective", "--load-plugins")}
    assert rows["plugin.vault.password"]["value"] == "***"
    assert rows["plugin.vault.password"]["origin"] == f"vault.secret ({vault.properties}:4)"


def test_the_additional_paths_are_found_under_the_name_of_the_patch(vault: Shell) -> None:
    settings = {"plugin.locator.classname": "vault:Vault", "plugin.vault.address": "here"}
    vault.write({**settings, "plugin.additional.jars": vault.folder})
    words = ("config", "--effective", "--load-plugins")
    rows = {row["key"]: (row["value"], row["origin"]) for row in vault.json(*words)}
    origin = f"plugin.additional.jars ({vault.properties}:3)"
    assert rows["plugin.additional.paths"] == (str(vault.folder), origin)
    assert rows["plugin.vault.address"] == ("here", f"{vault.properties}:2")
    assert "plugin.additional.jars" not in rows


def test_two_names_of_a_setting_with_different_values_are_refused(vault: Shell) -> None:
    both = {"plugin.additional.paths": vault.folder, "plugin.additional.jars": "/elsewhere"}
    vault.write({"plugin.backend": "embedded", **both})
    result = vault("config", "--effective")
    assert result.exit_code == Status.USAGE
    assert "keep plugin.additional.paths" in result.output
    vault.write({"plugin.backend": "embedded", **both, "plugin.additional.jars": vault.folder})
    rows = {row["key"]: row["origin"] for row in vault.json("config", "--effective")}
    assert rows["plugin.additional.paths"] == f"{vault.properties}:2"


def test_a_check_of_a_valid_file_prints_its_store(shell: Shell) -> None:
    result = shell("config", "--check", str(shell.properties))
    assert (result.exit_code, result.stdout) == (Status.OK, "embedded\n")
    assert not (shell.folder / "store").exists()
    assert shell.json("config", "--check", str(shell.properties)) == [
        {"backend": "embedded", "unchecked": None}
    ]
    assert shell("config", "--effective", "--check", "x").exit_code == Status.USAGE
    assert shell("config", "--effective", "--ddl").exit_code == Status.USAGE


def test_the_embedded_store_needs_no_preparation(shell: Shell) -> None:
    result = shell("config", "--ddl")
    assert (result.exit_code, result.stdout) == (Status.OK, "")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"plugin.sesion.timeout.ms": "1"}, "did you mean plugin.session.timeout.ms?"),
        ({"plugin.session.timeout.ms": "10s"}, "write 10000"),
        ({"plugin.lease.margin.ms": "9999"}, "lower the first or raise the second"),
        ({"plugin.backend": "etcetera"}, "no backend 'etcetera' is installed"),
        ({"plugin.embedded.notify": "pull"}, "did you mean poll?"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    shell: Shell, settings: dict[str, str], complaint: str
) -> None:
    shell.write({"plugin.backend": "embedded", **settings})
    result = shell("config", "--check", str(shell.properties))
    assert result.exit_code == Status.USAGE
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


def test_two_mistakes_are_one_line(shell: Shell) -> None:
    shell.write({"plugin.backend": "embedded", "plugin.x": "1", "plugin.y": "2"})
    result = shell("config", "--check", str(shell.properties))
    assert "plugin.x" in result.stderr
    assert "plugin.y" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_missing_is_a_usage_error(shell: Shell) -> None:
    result = shell("kv", "list", "--config", str(shell.folder / "nowhere"))
    assert result.exit_code == Status.USAGE
    assert "nowhere: No such file" in result.stderr


def test_the_command_line_goes_before_the_file(vault: Shell) -> None:
    store = vault.folder / "store"
    words = ("kv", "list", "--set", f"plugin.embedded.directory={store}", "--backend", "embedded")
    assert vault(*words, "--set", "plugin.vault.password=x").exit_code == Status.USAGE
    vault.write({"plugin.backend": "vault", "plugin.namespace": "n"})
    assert vault(*words).exit_code == Status.OK


def test_options_before_the_command_hold_unless_it_has_its_own(vault: Shell) -> None:
    store = f"plugin.embedded.directory={vault.folder / 'store'}"
    vault.write({"plugin.namespace": "n"})
    before = ("--config", str(vault.properties), "--backend", "embedded", "--set", store)
    assert vault(*before, "kv", "put", "k", "").exit_code == Status.OK
    assert vault(*before, "kv", "list").stdout == "k\n"
    assert vault(*before, "kv", "list", "--set", "plugin.namespace=m").stdout == ""
    assert "'nope'" in vault(*before, "kv", "list", "--backend", "nope").stderr


def test_a_setting_without_a_value_is_a_usage_error(shell: Shell) -> None:
    assert shell("kv", "list", "--set", "plugin.namespace").exit_code == Status.USAGE


def test_a_file_in_the_working_directory_is_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KIP30_CONFIG")
    rows = {row["key"]: row["origin"] for row in shell.json("config", "--effective")}
    assert rows["plugin.backend"] == "kip30.properties:1"
