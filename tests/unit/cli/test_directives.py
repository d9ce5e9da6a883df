"""The commands that direct elections: `kip30 pause`, `resume`, `step-down`, `hand-over`."""

from collections.abc import Iterator

import pytest

from kip30 import PluginLocator, UnavailableError
from kip30.cli import pause
from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.operations import DirectedService, read_directives
from kip30_conformance.polling import eventually, time_scale

from .shell import PATIENCE_SECONDS, Shell, ended
from .test_output import expect_fields


def waiting(shell: Shell) -> int:
    """Return how many places there are in the line for "s"."""
    return len(shell.json("leader", "s", "--all")[0]["line"])


@pytest.fixture
def led(shell: Shell) -> Iterator[PluginLocator]:
    """A service "s" that "a" leads and "b" waits for; both obey."""
    obeying = {"plugin.operations": "true"}
    text = shell.properties.read_text()
    shell.properties.write_text(text + "".join(f"{key}={one}\n" for key, one in obeying.items()))
    first, second = (PluginLocator().startup(str(shell.properties)) for _ in range(2))
    with first, second:
        first.leader_election("s").nominate("a", "")
        second.leader_election("s").nominate("b", "")
        eventually(lambda: waiting(shell) == 1)
        yield first


@pytest.mark.usefixtures("led")
def test_a_pause_is_shown_and_ends(shell: Shell) -> None:
    paused = shell("pause", "s", "t", "--for", "30min", "--reason", "new kernel")
    assert paused.exit_code == Status.OK
    first, second = paused.stdout.splitlines()
    assert first.startswith("s\ta\t1\t2")
    assert first.endswith("\tnew kernel")
    assert second.startswith("t\t-\t-\t2")
    shown = shell("leader", "s", "--all")
    assert "'s' is paused by " in shown.stderr
    assert shown.stdout.startswith("leader\ta\t1")
    (found,) = shell.json("pause", "s")
    assert (found["leader"], found["pause"]["until"]) == ("a", None)
    expect_fields(found, SCHEMA["pause"])
    assert "until it is resumed" in shell("leader", "s", "--all").stderr
    (found,) = shell.json("resume", "s")
    assert found["pause"] is None
    assert shell.json("leader", "s", "--all")[0]["pause"] is None
    assert shell("resume", "s", "never-led").exit_code == Status.OK


@pytest.mark.usefixtures("led")
def test_a_paused_service_without_a_leader_is_no_reason_to_worry(shell: Shell) -> None:
    shell("pause", "s")
    assert shell("step-down", "s", "--yes").stdout.startswith("s\t-\t-\tit is resumed")
    status = shell("status")
    assert (status.exit_code, status.stderr) == (Status.OK, "")
    assert "paused\ts\n" in status.stdout
    assert shell.json("status")[0]["paused"] == ["s"]


@pytest.mark.usefixtures("led")
def test_a_term_is_ended_and_handed_over(shell: Shell) -> None:
    (found,) = shell.json("step-down", "s", "--yes", "--reason", "noisy")
    assert (found["leader"], found["pause"]) == ("b", None)
    expect_fields(found, SCHEMA["step-down"])
    eventually(lambda: waiting(shell) == 1)
    handed = shell("hand-over", "s", "a", "--yes", "--epoch", str(found["epoch"]))
    assert handed.stdout.startswith("s\ta\t3\t-")


@pytest.mark.usefixtures("led")
def test_a_directive_that_cannot_be_obeyed_is_refused(shell: Shell) -> None:
    for words, problem in (
        (("step-down", "vacant"), "no candidate leads 'vacant'"),
        (("step-down", "s", "--epoch", "7"), "epoch 1, not 7"),
        (("hand-over", "s", "a"), "'a' leads 's' already"),
        (("hand-over", "s", "z"), "'z' does not wait to lead 's'"),
    ):
        result = shell(*words, "--yes")
        assert (result.exit_code, result.stdout) == (Status.REFUSED, "")
        assert problem in result.stderr
    result = shell("step-down", "s")
    assert result.exit_code == Status.USAGE
    assert "needs --yes" in result.stderr
    assert shell("leader", "s").stdout.startswith("a\t1")


def test_a_leader_that_does_not_obey_is_named(shell: Shell) -> None:
    leads = ("run", "--service", "s", "--id", "a", "--quiet", "--set", "plugin.operations=false")
    waits = ("run", "--service", "s", "--id", "b", "--quiet")
    with ended(shell.start(*leads, "--", "sleep", "60")):
        eventually(lambda: shell("leader", "s").exit_code == Status.OK)
        with ended(shell.start(*waits, "--", "sleep", "60")):
            eventually(lambda: waiting(shell) == 1)
            result = shell("step-down", "s", "--yes", "--wait", "0.2")
            assert result.exit_code == Status.REFUSED
            assert "'a' did not step down in 0.2 s" in result.stderr
            assert "the step-down is withdrawn" in result.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("pause",), "SERVICE"),
        (("pause", "s", "--for", "0s"), "too short"),
        (("pause", "s", "--for", "400d"), "give up to a year"),
        (("pause", "s", "--for", "soon"), "not a time"),
        (("pause", "s", "--reason", "x" * 201), "up to 200 characters"),
        (("pause", "s", "--reason", "a\tb"), "can be printed"),
        (("pause", ""), "service is empty"),
        (("pause", "kip30.lock/s"), "kip30's own services"),
        (("pause", "é" * 42), "255 is the limit"),
        (("step-down", "s", "--wait", "-1"), "0 or more"),
        (("hand-over", "s", ""), "candidate is empty"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    shell: Shell, words: tuple[str, ...], problem: str
) -> None:
    yes = () if words[0] == "pause" else ("--yes",)
    result = shell(*words, *yes)
    assert result.exit_code == Status.USAGE
    assert problem in result.stderr
    assert shell("kv", "list", "kip30.directives").stdout == ""


def test_a_preview_of_a_run_shows_the_pause(shell: Shell) -> None:
    shell("pause", "s")
    found = shell("run", "--service", "s", "--dry-run", "--", "true")
    assert "until it is resumed" in found.stdout
    shell("resume", "s")
    assert "paused" not in shell("run", "--service", "s", "--dry-run", "--", "true").stdout


def test_a_record_that_cannot_be_read_is_shown_with_the_line(shell: Shell) -> None:
    shell("kv", "put", "kip30.directives/s", "{}")
    shown = shell("leader", "s", "--all")
    assert "the directives for 's' cannot be read" in shown.stderr
    assert shell("pause", "s").exit_code == Status.UNAVAILABLE


@pytest.mark.usefixtures("led")
def test_terms_and_directives_are_listed(shell: Shell) -> None:
    shell("step-down", "s", "--yes")
    eventually(lambda: len(shell.json("terms", "s")) == 2)
    first, second = shell("terms", "s").stdout.splitlines()
    assert first.startswith("1\ta\t")
    assert "\tit steps down by " in first
    assert second.startswith("2\tb\t")
    assert second.endswith("\t-\t")
    found = shell.json("terms", "s")
    expect_fields(found[0], SCHEMA["terms"])
    assert (found[1]["candidate"], found[1]["until"], found[1]["ended"]) == ("b", None, "")
    assert shell.json("leader", "s", "--all")[0]["since"] == found[1]["since"]
    asked = shell.json("terms", "s", "--directives")
    assert [one["action"] for one in asked] == ["step-down", "step-down: done"]
    expect_fields(asked[0], SCHEMA["terms --directives"])
    assert shell("terms", "s", "--directives").stdout.startswith("1\t2")


def test_a_service_of_which_nothing_is_noted_is_refused(shell: Shell) -> None:
    for options, what in (((), "no term of"), (("--directives",), "no directive for")):
        result = shell("terms", "s", *options)
        assert (result.exit_code, result.stdout) == (Status.REFUSED, "")
        assert result.stderr.startswith(f"kip30: {what} 's' is noted")
        assert "`kip30 services` lists the services" in result.stderr
        assert shell("terms", "s", *options, "--json").stdout == ""


def test_a_locator_that_closes_at_once_has_noted_its_term(shell: Shell) -> None:
    # In a process of its own: a runner ignores signals from its end on.
    runner = shell.start("run", "--service", "s", "--id", "a", "--quiet", "--", "true")
    with ended(runner):
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 0
    (found,) = shell.json("terms", "s")
    assert (found["candidate"], found["ended"]) == ("a", "resigned")


def test_a_wrong_name_among_many_is_refused_before_anything_is_paused(shell: Shell) -> None:
    assert shell("pause", "first", "second", "kip30.lock/x").exit_code == Status.USAGE
    assert shell("kv", "list", "kip30.directives").stdout == ""


def test_a_pause_of_many_that_fails_halfway_says_which_are_paused(shell: Shell) -> None:
    shell("kv", "put", "kip30.directives/damaged", "{}")
    result = shell("pause", "first", "second", "damaged", "last")
    assert result.exit_code == Status.UNAVAILABLE
    assert shell("kv", "get", "kip30.directives/first").exit_code == Status.OK
    assert [one.split("\t")[0] for one in result.stdout.splitlines()] == ["first", "second", "last"]
    assert "'damaged': the directives for 'damaged' cannot be read" in result.stderr


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_an_error_among_many_is_an_object_if_the_others_are(shell: Shell, verb: str) -> None:
    shell("kv", "put", "kip30.directives/damaged", "{}")
    result = shell(verb, "damaged", "last", "--json")
    assert [one["service"] for one in shell.json_of(result.stdout)] == ["last"]
    (printed,) = shell.json_of(result.stderr)
    assert printed["error"]["exit"] == result.exit_code == Status.UNAVAILABLE
    assert printed["error"]["message"].startswith("'damaged': the directives")


@pytest.mark.parametrize("form", ["table", "json"])
def test_services_that_are_not_tried_are_named_before_the_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    tried = list[str]()

    def silent(_locator: PluginLocator, service: str, **_: object) -> DirectedService:
        tried.append(service)
        raise UnavailableError("no answer")

    monkeypatch.setattr(pause, "pause_service", silent)
    result = shell("pause", "first", "second", "third", "-o", form)
    assert (result.exit_code, tried) == (Status.UNAVAILABLE, ["first"])
    left, last = result.stderr.splitlines()
    assert left == "kip30: not tried: 'second', 'third'"
    assert "'first': no answer" in last
    assert last.startswith("{") == (form == "json")


@pytest.mark.usefixtures("led")
def test_a_paused_service_that_is_led_is_shown_by_status(shell: Shell) -> None:
    """`kip30 status`: "A service that is paused is shown as such". Its leader must not fail."""
    shell("pause", "s")
    assert shell.json("status")[0]["paused"] == ["s"]


def test_no_term_is_ended_that_was_not_asked_about(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No candidate leads when the operator looks, and so there is no question; then one does."""
    obeying = {"plugin.operations": "true"}
    text = shell.properties.read_text()
    shell.properties.write_text(text + "".join(f"{key}={one}\n" for key, one in obeying.items()))
    first, second = (PluginLocator().startup(str(shell.properties)) for _ in range(2))

    def read(locator: PluginLocator, service: str) -> DirectedService:
        found = read_directives(locator, service)
        first.leader_election("s").nominate("a", "")
        second.leader_election("s").nominate("b", "")
        line = second.group_membership("kip30.candidates/s")
        eventually(lambda: len(line.membership_list()) == 1)
        return found

    monkeypatch.setattr("kip30.cli._directed.read_directives", read)
    with first, second:
        result = shell("hand-over", "s", "b")
        term = first.leader_election("s").get_leader()
    assert term is not None
    assert (term.id, result.exit_code) == ("a", Status.REFUSED)
    assert "'a' leads 's' with epoch 1, not no candidate" in result.stderr
