import logging
import subprocess
import sys

import click
import pytest

from kip30 import errors
from kip30.cli._exit_codes import Status
from kip30.cli._failures import explain, guarded, say

EXPECTED = {
    errors.UsageError: Status.USAGE,
    errors.InvalidNameError: Status.USAGE,
    errors.ValueTooLargeError: Status.USAGE,
    errors.CodecError: Status.USAGE,
    errors.ConfigError: Status.USAGE,
    errors.LifecycleError: Status.USAGE,
    errors.UnsupportedError: Status.UNSUPPORTED,
    errors.DefiniteError: Status.REFUSED,
    errors.KeyExistsError: Status.REFUSED,
    errors.KeyMissingError: Status.REFUSED,
    errors.VersionConflictError: Status.REFUSED,
    errors.FencedError: Status.REFUSED,
    errors.GuardError: Status.REFUSED,
    errors.GroupError: Status.REFUSED,
    errors.GroupNotEmptyError: Status.REFUSED,
    errors.IllegalGenerationError: Status.REFUSED,
    errors.FencedInstanceError: Status.REFUSED,
    errors.BannedError: Status.REFUSED,
    errors.MemberExistsError: Status.REFUSED,
    errors.NotMemberError: Status.REFUSED,
    errors.AlreadyNominatedError: Status.REFUSED,
    errors.NotNominatedError: Status.REFUSED,
    errors.NotElectedError: Status.NOT_ELECTED,
    errors.DirectiveRefusedError: Status.REFUSED,
    errors.DirectiveNotObeyedError: Status.REFUSED,
    errors.LeadershipLostError: Status.REFUSED,
    errors.NotAcquiredError: Status.REFUSED,
    errors.GripLostError: Status.REFUSED,
    errors.AuthenticationError: Status.UNAVAILABLE,
    errors.PositionLostError: Status.REFUSED,
    errors.StoreError: Status.UNAVAILABLE,
    errors.UnavailableError: Status.UNAVAILABLE,
    errors.ClosedError: Status.UNAVAILABLE,
    errors.OutcomeUnknownError: Status.UNKNOWN,
}


def failing(error: BaseException) -> None:
    raise error


def test_every_error_has_its_code() -> None:
    assert {kind: explain(kind("x")).status for kind in EXPECTED} == EXPECTED
    assert explain(errors.PartialWriteError({}, {})).status == Status.UNKNOWN


def test_no_error_was_forgotten() -> None:
    every = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    ours = {kind for kind in every if issubclass(kind, errors.Kip30Error)}
    assert ours - EXPECTED.keys() == {errors.Kip30Error, errors.PartialWriteError}


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: failing(errors.KeyExistsError("two\nlines."))) == Status.REFUSED
    told = capsys.readouterr()
    assert told.err == "kip30: two; lines — `kip30 kv update` replaces its value\n"
    assert told.out == ""


def test_an_unexpected_error_is_one_line_without_its_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KIP30_DEBUG", raising=False)
    assert guarded(lambda: failing(RuntimeError("hunter2"))) == Status.INTERNAL
    told = capsys.readouterr().err
    assert told == "kip30: unexpected RuntimeError — KIP30_DEBUG=1 shows where; please report it\n"


def test_debugging_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIP30_DEBUG", "1")
    guarded(lambda: failing(errors.UnavailableError("gone")))
    told = capsys.readouterr().err
    assert "Traceback (most recent call last)" in told
    assert told.splitlines()[-1].startswith("kip30: gone — ")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_is_reported_by_the_exit_code_alone(
    capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    assert guarded(lambda: failing(error)) == Status.INTERRUPTED
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("returned", [None, "text", 0])
def test_a_command_that_returns_no_failure_exits_with_ok(returned: object) -> None:
    assert guarded(lambda: returned) == Status.OK


def test_a_code_that_is_returned_counts() -> None:
    assert guarded(lambda: 7) == 7


def test_an_operating_systems_error_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    guarded(lambda: failing(PermissionError(13, "Permission denied", "report.json")))
    assert capsys.readouterr().err == "kip30: report.json: Permission denied\n"


def test_a_message_is_one_line_and_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say("service a\nb\x1b[2J\udcff é")
    assert capsys.readouterr().err == "kip30: service a\\nb\\x1b[2J\\udcff é\n"


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capsys.readouterr() == ("", "kip30: hello\n")


LOG = """
import logging
from kip30.cli._failures import set_up_logging
set_up_logging()
logging.getLogger("vendor").error("hunter2")
"""


@pytest.mark.parametrize(("debug", "shown"), [("", False), ("0", False), ("1", True)])
def test_the_log_is_shown_when_debugging_only(debug: str, *, shown: bool) -> None:
    told = subprocess.run(
        [sys.executable, "-c", LOG],
        check=True,
        capture_output=True,
        env={"KIP30_DEBUG": debug, "PYTHONPATH": ":".join(sys.path)},
    )
    assert (b"hunter2" in told.stderr) is shown
    assert logging.getLogger("vendor").level == logging.NOTSET
