import sqlite3
from contextlib import closing
from pathlib import Path

from kip30.cli._exit_codes import Status

from .shell import Shell

LIMITED = """
from kip30.driver import Capability
from kip30_backends.embedded import EmbeddedBackend

class Limited(EmbeddedBackend):
    name = "limited"
    capabilities = frozenset({Capability.LISTING})
"""
DEAF = """
from kip30_backends.embedded import EmbeddedBackend

class Deaf(EmbeddedBackend):
    name = "deaf"
    def __init__(self, context, settings):
        super().__init__(context, settings)
        watch = self.observe.watch
        self.observe.watch = lambda target, sink: watch(target, lambda snapshot: None)
"""
READ_ONLY = """
from kip30.driver.kit.futures import failed
from kip30.errors import UnavailableError
from kip30_backends.embedded import EmbeddedBackend

class ReadOnly(EmbeddedBackend):
    name = "read-only"
    def __init__(self, context, settings):
        super().__init__(context, settings)
        self.storage.write = lambda _: failed(UnavailableError("no leader"))
"""

OUTDATED = """
from kip30_backends.embedded import EmbeddedBackend

class Outdated(EmbeddedBackend):
    name = "outdated"
    def describe(self):
        return {"version": "1", "finding": "update it to 2"}
"""

JOURNAL = "change"


def records(store: Path) -> dict[str, int]:
    """Return how many rows each table of the store has, but for its bounded journal."""
    with closing(sqlite3.connect(store / "kip30.db")) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608
            for (name,) in names.fetchall()
            if name != JOURNAL
        }


def test_a_store_in_health_passes(shell: Shell) -> None:
    result = shell("doctor")
    assert result.exit_code == Status.OK
    assert result.stderr == ""
    assert all(line.startswith("ok\t") for line in result.stdout.splitlines())


def test_the_store_version_and_the_times_are_reported(shell: Shell) -> None:
    found = {one["step"]: one for one in shell.json("doctor")}
    assert "SQLite" in found["store"]["detail"]
    assert "median" in found["read, round trips"]["detail"]
    assert found["connect"]["milliseconds"] > 0


def test_nothing_is_left_behind(shell: Shell) -> None:
    shell("doctor")
    once = records(shell.folder / "store")
    shell("doctor")
    assert records(shell.folder / "store") == once
    assert shell("kv", "list", "kip30-doctor").stdout == ""
    assert shell("group", "list", "kip30-doctor").stdout == ""
    assert shell("leader", "kip30-doctor").exit_code == Status.REFUSED


def test_a_missing_capability_is_not_a_failure(shell: Shell) -> None:
    use(shell, "limited:Limited", LIMITED)
    found = {one["step"]: one["verdict"] for one in shell.json("doctor")}
    refused = ("compare and set", "guard a write", "fence a write")
    assert [found[step] for step in refused] == ["-"] * len(refused)
    assert found["list a namespace"] == "ok"


def test_a_failed_cleanup_does_not_hide_the_failed_step(shell: Shell) -> None:
    use(shell, "readonly:ReadOnly", READ_ONLY)
    result = shell("doctor")
    assert result.exit_code == Status.UNAVAILABLE
    assert "create a key" in result.stderr.splitlines()[-1]


def test_a_store_that_does_not_notify_is_found_out(shell: Shell) -> None:
    use(shell, "deaf:Deaf", DEAF)
    result = shell("doctor", "--set", "plugin.operation.timeout.ms=500")
    assert result.exit_code == Status.UNAVAILABLE
    assert "observe a change" in result.stderr
    assert "no notification within 0.5 s" in result.stdout


def test_a_finding_of_a_store_is_a_failure(shell: Shell) -> None:
    use(shell, "outdated:Outdated", OUTDATED)
    result = shell("doctor")
    assert result.exit_code != Status.OK
    assert "update it to 2" in result.stdout


def test_an_unreachable_store_fails_at_the_connect_step(shell: Shell) -> None:
    with shell.locked_store():
        result = shell("doctor", "--set", "plugin.connect.timeout.ms=200")
    assert result.exit_code == Status.UNAVAILABLE
    assert result.stdout.startswith("FAILED\tconnect\t")
    assert len(result.stdout.splitlines()) == 1


def use(shell: Shell, classname: str, source: str) -> None:
    """Let *shell* use a variant of the embedded store."""
    (shell.folder / f"{classname.partition(':')[0]}.py").write_text(source)
    shell.write(
        {
            "plugin.locator.classname": classname,
            "plugin.additional.paths": shell.folder,
            "plugin.embedded.directory": shell.folder / "store",
        }
    )


def test_a_wrong_configuration_is_reported_before_any_step(shell: Shell) -> None:
    shell.configure(plugin_embedded_notify="pull", plugin_x="1")
    result = shell("doctor")
    assert (result.exit_code, result.stdout) == (Status.USAGE, "")
    assert result.stderr.count("\n") == 1


# -- each server on its own

SERVERS = """
from kip30.errors import UnavailableError
from kip30_backends.embedded import EmbeddedBackend

class Three(EmbeddedBackend):
    name = "three"
    @classmethod
    def servers(cls, settings):
        return [("a:1", settings), ("b:1", None), ("c:1", settings)]
    def __init__(self, context, settings):
        if settings is None:
            raise UnavailableError("b:1 is away")
        super().__init__(context, settings)
    def describe(self):
        return {"version": "1", "role": "leader", "clocks": "5 ms apart"}
"""


def test_a_store_without_servers_is_tested_as_a_whole(shell: Shell) -> None:
    (found,) = shell.json("doctor", "-e")
    assert (found["server"], found["verdict"], found["role"]) == ("embedded", "ok", None)
    assert "SQLite" in found["version"]
    assert 0 < found["median_ms"] <= found["worst_ms"]


def test_a_server_that_fails_does_not_hide_the_others(shell: Shell) -> None:
    use(shell, "three:Three", SERVERS)
    result = shell("doctor", "--each-server")
    assert result.exit_code == Status.UNAVAILABLE
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["ok", "a:1"], ["FAILED", "b:1"], ["ok", "c:1"]]
    assert rows[0][2:4] + rows[0][6:] == ["1", "leader", "5 ms apart", ""]
    assert rows[1][2:] == ["-"] * 5 + ["b:1 is away"]
    assert result.stderr == "kip30: 1 failed: b:1\n"
    assert records(shell.folder / "store")["session"] == 0


def test_a_finding_fails_a_server(shell: Shell) -> None:
    use(shell, "outdated:Outdated", OUTDATED)
    result = shell("doctor", "-e")
    assert result.exit_code == Status.UNAVAILABLE
    assert result.stdout == "FAILED\toutdated\t1\t-\t-\t-\t-\tupdate it to 2\n"
