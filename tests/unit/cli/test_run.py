import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from kip30.cli._exit_codes import Status
from kip30.runner import LOST_STATUS
from kip30.runtime import backend_registry
from kip30.runtime.resolution import unset_store
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, ended, eventually, line_of

MUCH_LATER = round(10_000 * PATIENCE_SECONDS * time_scale())
SHOW_ENVIRONMENT = 'echo "$KIP30_SERVICE $KIP30_CANDIDATE $KIP30_EPOCH"'


def run(*words: str) -> tuple[str, ...]:
    return ("run", "--service", "s", "--id", "n1", *words)


def test_the_command_finds_itself_leading(shell: Shell) -> None:
    result = shell.finish(*run("--", "sh", "-c", SHOW_ENVIRONMENT))
    assert (result.returncode, result.stdout) == (Status.OK, b"s n1 1\n")


def test_the_command_needs_no_dashes_before_it_and_keeps_its_options(shell: Shell) -> None:
    assert shell.finish(*run("echo", "--service", "-n", "x")).stdout == b"--service -n x\n"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"LC_CTYPE": "C.UTF-8"},
        {"LC_CTYPE": "C"},
        {"LC_ALL": "C"},
        {"PYTHONCOERCECLOCALE": "0"},
        {"PYTHONCOERCECLOCALE": "0", "LC_CTYPE": "C"},
    ],
    ids=str,
)
def test_the_command_has_the_runners_environment(shell: Shell, more: dict[str, str]) -> None:
    names = ("PATH", "KIP30_CONFIG", "KIP30_TIME_SCALE")
    given = {name: os.environ[name] for name in names if name in os.environ}
    given |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}
    shown = shell.finish(*run("--", "env", "-0"), env=given).stdout.decode()
    seen = dict(one.split("=", 1) for one in shown.split("\0")[:-1])
    term = {"KIP30_SERVICE": "s", "KIP30_CANDIDATE": "n1", "KIP30_EPOCH": "1"}
    assert seen == {**given, **term}


def test_stdin_is_the_commands(shell: Shell) -> None:
    with ended(shell.start(*run("cat"), stdin=subprocess.PIPE)) as runner:
        out, _ = runner.communicate(b"\x00\xff", PATIENCE_SECONDS * time_scale())
    assert out == b"\x00\xff"


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 7", 7), ("kill -9 $$", 128 + 9), ("exit 0", 0), ("exit 130", 130)],
)
def test_the_commands_status_is_passed_on(shell: Shell, command: str, status: int) -> None:
    assert shell.finish(*run("sh", "-c", command)).returncode == status


def test_a_command_that_cannot_be_found_takes_no_leadership(shell: Shell) -> None:
    result = shell.finish(*run("--quiet", "no-such-command-anywhere"))
    complaint = b"kip30: cannot run no-such-command-anywhere: No such file or directory\n"
    assert (result.returncode, result.stderr) == (127, complaint)
    assert shell.finish(*run("sh", "-c", SHOW_ENVIRONMENT)).stdout == b"s n1 1\n"


def test_a_store_that_frees_the_term_of_a_killed_runner_is_refused_before_it_leads(
    shell: Shell,
) -> None:
    shell.configure(plugin_embedded_liveness="record")
    refused = shell.finish(*run("--quiet", "sh", "-c", SHOW_ENVIRONMENT))
    assert (refused.returncode, refused.stdout) == (Status.UNSUPPORTED, b"")
    assert b"set plugin.embedded.liveness to ofd" in refused.stderr
    shell.configure()
    assert shell.finish(*run("sh", "-c", SHOW_ENVIRONMENT)).stdout == b"s n1 1\n"


def test_progress_goes_to_stderr(shell: Shell) -> None:
    told = shell.finish(*run("true")).stderr.decode().splitlines()
    assert "kip30: leading s, epoch 1" in told
    assert all(line.startswith("kip30: ") for line in told)


@pytest.mark.parametrize("words", [("run", "--service", "s"), ("coordinate", "--group", "g")])
def test_a_default_store_directory_is_reported_first(shell: Shell, words: tuple[str, ...]) -> None:
    what = [*words, *(["--shards", "1"] if words[0] == "coordinate" else []), "--", "true"]
    place, mine = shell.folder / "state" / "kip30", "which only processes of this machine share"
    environment = {**os.environ, "XDG_STATE_HOME": str(shell.folder / "state")}
    shell.write({"plugin.backend": "embedded"})
    told = shell.finish(*what, env=environment).stderr.decode()
    expected = f"kip30: the store is embedded, {place}, {mine} (not set: plugin.embedded.directory)"
    assert told.splitlines()[0] == expected
    shell.configure()
    assert "the store is" not in shell.finish(*what).stderr.decode()


def test_the_message_for_a_default_store_names_the_unset_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend_registry, "_default", lambda _: ("embedded", "it is alone"))
    told = unset_store({"plugin.embedded.directory": "/here"})
    shared = "which only processes of this machine share"
    assert told == f"the store is embedded, /here, {shared} (not set: plugin.backend)"


def test_one_file_means_one_store_in_every_working_directory(shell: Shell) -> None:
    shell.configure(plugin_embedded_directory="state")
    elsewhere = shell.folder / "elsewhere"
    elsewhere.mkdir()
    for epoch, folder in ((1, shell.folder), (2, elsewhere)):
        result = shell.finish(*run("--", "sh", "-c", SHOW_ENVIRONMENT), cwd=folder)
        assert result.stdout == f"s n1 {epoch}\n".encode()
    assert [file.parent for file in shell.folder.rglob("kip30.db")] == [shell.folder / "state"]


def test_the_command_goes_on_when_stderr_is_a_broken_pipe(shell: Shell) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = shell.finish(*run("sh", "-c", SHOW_ENVIRONMENT), stderr=writing)
    os.close(writing)
    assert (result.returncode, result.stdout) == (Status.OK, b"s n1 1\n")


def test_quiet_tells_nothing(shell: Shell) -> None:
    assert shell.finish(*run("--quiet", "true")).stderr == b""
    shell.write({"plugin.backend": "embedded"})
    environment = {**os.environ, "XDG_STATE_HOME": str(shell.folder)}
    assert shell.finish(*run("--quiet", "true"), env=environment).stderr == b""


def test_a_second_runner_gives_up_when_its_wait_is_over(shell: Shell) -> None:
    with ended(shell.start(*run("sleep", "60"))) as first:
        eventually(lambda: shell("leader", "s").exit_code == Status.OK)
        second = shell.finish("run", "--service", "s", "--id", "n2", "--wait", "0.5", "true")
        assert second.returncode == Status.NOT_ELECTED
        assert "`kip30 leader s`" in second.stderr.decode()
        first.terminate()


def test_a_clean_end_hands_over_at_once(shell: Shell) -> None:
    with ended(shell.start(*run("sh", "-c", "read line"), stdin=subprocess.PIPE)) as first:
        eventually(lambda: shell("leader", "s").exit_code == Status.OK)
        with ended(shell.start("run", "--service", "s", "sh", "-c", SHOW_ENVIRONMENT)) as second:
            assert line_of(second.stderr).startswith("kip30: waiting to lead s")
            first.communicate(b"\n", PATIENCE_SECONDS * time_scale())
            assert line_of(second.stdout).endswith(" 2")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_command_and_its_status_counts(
    shell: Shell, number: signal.Signals
) -> None:
    command = "trap 'exit 9' TERM INT HUP; echo ready; while :; do sleep 0.05; done"
    with ended(shell.start(*run("sh", "-c", command))) as runner:
        assert line_of(runner.stdout) == "ready"
        runner.send_signal(number)
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 9
    assert shell("leader", "s").exit_code == Status.REFUSED


RUN = ("run", "--service=s")
COORDINATE = ("coordinate", "--group=s", "--shards=1")
UNTIL_TERM = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
LATE = [
    *(signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2),
]


@pytest.mark.parametrize(
    ("words", "over", "status", "late"),
    [
        *((RUN, "epoch 1 is over", 7, late) for late in LATE),
        (COORDINATE, "generation 1: ", 7, signal.SIGHUP),
        ((*COORDINATE, "--each"), "item 0: ", 128 + signal.SIGTERM, signal.SIGHUP),
    ],
)
def test_a_signal_to_a_runner_that_closes_changes_no_status(
    shell: Shell, words: tuple[str, ...], over: str, status: int, late: signal.Signals
) -> None:
    with ended(shell.start(*words, "sh", "-c", UNTIL_TERM)) as runner:
        assert line_of(runner.stdout) == "ready"
        runner.terminate()
        eventually(lambda: over in line_of(runner.stderr))

        def has_ended() -> bool:
            runner.send_signal(late)
            return runner.poll() is not None

        eventually(has_ended)
        assert runner.returncode == status


def test_a_leadership_that_is_lost_ends_the_command(shell: Shell) -> None:
    with ended(shell.start(*run("--once", "sh", "-c", "echo ready; exec sleep 60"))) as runner:
        assert line_of(runner.stdout) == "ready"
        with shell.locked_store():
            assert runner.wait(PATIENCE_SECONDS * time_scale()) == LOST_STATUS == Status.LOST


def test_a_store_out_of_reach_is_waited_for(shell: Shell) -> None:
    shell.configure(plugin_connect_timeout_ms=300)
    with shell.locked_store():
        runner = shell.start(*run("echo", "done"))
        told = [line_of(runner.stderr), line_of(runner.stderr)]
    assert told[1].startswith("kip30: waiting for the store: ")
    with ended(runner):
        assert line_of(runner.stdout) == "done"


def test_the_wait_for_a_store_out_of_reach_is_bounded(shell: Shell) -> None:
    shell.configure(plugin_connect_timeout_ms=MUCH_LATER)
    with shell.locked_store():
        assert shell.finish(*run("--wait", "0.5", "true")).returncode == Status.NOT_ELECTED


def test_a_signal_ends_the_wait_for_a_store_out_of_reach(shell: Shell) -> None:
    shell.configure(plugin_connect_timeout_ms=MUCH_LATER)
    with shell.locked_store(), ended(shell.start(*run("true"))) as runner:
        assert line_of(runner.stderr).startswith("kip30: waiting to lead")
        runner.terminate()
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM


def test_no_wait_at_all_is_still_an_attempt(shell: Shell) -> None:
    assert shell.finish(*run("--wait", "0", "true")).returncode == Status.OK


def test_an_empty_service_is_refused_before_any_waiting(shell: Shell) -> None:
    result = shell.finish("run", "--service", "", "true")
    assert result.returncode == Status.USAGE
    assert result.stderr == b"kip30: service is empty: give at least one character\n"


def test_a_wrong_configuration_is_not_waited_for(shell: Shell) -> None:
    result = shell.finish(*run("--set", "plugin.nonsense=1", "true"))
    assert result.returncode == Status.USAGE
    assert b"plugin.nonsense (--set) is not a setting" in result.stderr


def test_a_store_that_cannot_be_used_is_not_waited_for(shell: Shell) -> None:
    (shell.folder / "store").write_text("not a folder")
    assert shell.finish(*run("true")).returncode == Status.UNAVAILABLE


@pytest.mark.parametrize("option", ["--grace", "--wait"])
@pytest.mark.parametrize("written", ["nan", "inf", "-1", "-inf", "soon", ""])
def test_a_duration_must_be_a_number_of_seconds(shell: Shell, option: str, written: str) -> None:
    result = shell(*run(f"{option}={written}", "true"))
    assert result.exit_code == Status.USAGE
    assert "is not a number of seconds, 0 or more" in result.stderr


def test_a_grace_of_more_than_a_year_is_a_usage_error(shell: Shell) -> None:
    result = shell.finish(*run("--grace", "1e10", "true"))
    assert (result.returncode, result.stderr) == (
        Status.USAGE,
        b"kip30: a grace of 1e+10 s is not possible: give 0 to 31536000 s, which is a year\n",
    )


def test_a_long_wait_and_the_longest_grace_are_possible(shell: Shell) -> None:
    result = shell.finish(*run("--wait", "1e300", "--grace", "31536000", "true"))
    assert result.returncode == Status.OK


def test_no_grace_at_all_ends_a_stubborn_command(shell: Shell) -> None:
    command = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with ended(shell.start(*run("--grace", "0", "sh", "-c", command))) as runner:
        assert line_of(runner.stdout) == "ready"
        runner.terminate()
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGKILL


@pytest.mark.parametrize("written", ["nan", "inf", "0", "-1"])
def test_a_storm_lasts_a_number_of_minutes(shell: Shell, written: str) -> None:
    result = shell("servers", "storm", "etcd", f"--minutes={written}")
    assert result.exit_code == Status.USAGE
    assert "minutes" in result.stderr


def test_nothing_to_run_is_a_usage_error(shell: Shell) -> None:
    assert shell("run", "--service", "s").exit_code == Status.USAGE
    assert shell("run", "true").exit_code == Status.USAGE


RECORD = "kip30.done/s"


def test_a_success_that_cannot_be_noted_is_an_error(shell: Shell) -> None:
    damage = (sys.executable, "-m", "kip30", "kv", "put", RECORD, "damaged")
    result = shell.finish(*run("--once-per", "today", "--", *damage))
    assert result.returncode == Status.UNAVAILABLE
    assert b"has succeeded, but may run again" in result.stderr
    assert b"delete it if its commands may run again" in result.stderr


@pytest.mark.parametrize("words", [(), ("--wait", "0"), ("--once",)], ids=" ".join)
def test_a_key_that_is_done_ends_the_wait_with_success(
    shell: Shell, words: tuple[str, ...]
) -> None:
    once = run("--once-per", "today", *words, "--", "echo", "ran")
    assert [shell.finish(*once).stdout for _ in range(2)] == [b"ran\n", b""]
    assert shell.finish(*once).returncode == Status.OK
    with ended(shell.start(*run("sh", "-c", "echo up; sleep 1000"))) as leader:
        assert line_of(leader.stdout) == "up"
        assert shell.finish(*once).returncode == Status.OK  # though another one leads


def test_a_record_that_cannot_be_read_lets_nothing_run(shell: Shell) -> None:
    assert shell("kv", "put", RECORD, "damaged").exit_code == Status.OK
    result = shell.finish(*run("--once-per", "today", "--", "echo", "ran"))
    assert (result.returncode, result.stdout) == (Status.UNAVAILABLE, b"")


def test_a_dry_run_shows_what_is_meant_and_runs_nothing(shell: Shell) -> None:
    once = ("--once-per", "today", "--grace", "3", "--", "echo", "it's ran")
    before = shell.finish(*run("-n", *once))
    assert before.returncode == Status.OK
    shown = dict(line.split("\t") for line in before.stdout.decode().splitlines())
    assert (shown["store"], shown["candidate"], shown["grace"]) == ("embedded", "n1", "3 s")
    assert (shown["leader"], shown["done"]) == ("-", "'today' was not")
    assert shown["command"] == "echo 'it'\"'\"'s ran'"
    assert shell("leader", "s").exit_code == Status.REFUSED
    assert shell.finish(*run(*once)).stdout == b"it's ran\n"
    after = shell.finish(*run("-n", *once)).stdout.decode()
    assert "'today' was done by n1, epoch 1" in after


def wait_in_line(shell: Shell, candidate: str) -> None:
    eventually(lambda: candidate in shell("leader", "s", "-a").stdout)


def test_the_runner_of_the_highest_priority_follows(shell: Shell) -> None:
    with ExitStack() as running:
        runners = list[subprocess.Popen[bytes]]()
        for candidate, priority in (("n1", "0"), ("n2", "0"), ("n3", "7")):
            words = ("--service", "s", "--id", candidate, "--priority", priority, "--quiet")
            started = shell.start("run", *words, "sleep", "60")
            runners.append(running.enter_context(ended(started)))
            wait_in_line(shell, candidate)
        eventually(lambda: "kip30.preferred/s" in shell("groups", "-a").stdout)
        runners[0].terminate()
        eventually(lambda: shell("leader", "s").stdout.split()[:1] == ["n3"])


def test_a_priority_is_checked_before_anything_runs(shell: Shell) -> None:
    for wrong in ("-1", "101", "1.5", "high"):
        assert shell.finish(*run("--priority", wrong, "true")).returncode == Status.USAGE
    for given in (("--priority", "7"), ("--set", "plugin.priority=7"), ("-n", "--priority", "7")):
        result = shell.finish(*run("--set", "plugin.operations=false", *given, "echo", "ran"))
        assert (result.returncode, result.stdout) == (Status.USAGE, b"")
        assert b"priority is 7: without plugin.operations = true it has no effect" in result.stderr
    assert not (shell.folder / "store").exists()
    shown = shell.finish(*run("-n", "--priority", "7", "true")).stdout.decode()
    assert "priority\t7\n" in shown


def test_a_key_that_is_missing_is_not_taken_from_the_command(shell: Shell) -> None:
    result = shell.finish(*run("--once-per", "--", "echo", "ran"))
    assert (result.returncode, result.stdout) == (Status.USAGE, b"")
    assert b"is it missing before the command?" in result.stderr


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 129])
def test_a_key_that_is_none_is_refused_before_anything_runs(shell: Shell, key: str) -> None:
    result = shell.finish(*run("--once-per", key, "--", "echo", "ran"))
    assert (result.returncode, result.stdout) == (Status.USAGE, b"")
    assert b"kip30: the key" in result.stderr
