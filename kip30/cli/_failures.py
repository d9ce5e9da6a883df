"""Reports an error as one line on stderr, ``kip30: problem — advice``, and an exit code.

A traceback is shown only with ``KIP30_DEBUG=1``, and possible secrets are never shown.
"""

import io
import json
import logging
import os
import select
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

import click
from typing_extensions import override

from kip30.cli import _output
from kip30.cli._exit_codes import Status
from kip30.cli._standard_streams import discard
from kip30.cli._stderr import to_stderr
from kip30.errors import (
    AuthenticationError,
    BannedError,
    ClosedError,
    DefiniteError,
    FencedError,
    FencedInstanceError,
    GroupError,
    GroupNotEmptyError,
    GuardError,
    IllegalGenerationError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    MemberExistsError,
    NotElectedError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
    VersionConflictError,
)


class CommandFailure(NamedTuple):
    """Problem, advice, and exit code of a failure."""

    what: str
    advice: str
    status: Status


_OTHER_ID = "choose another --id; that of a crashed member is free after the session timeout"
_CHECK_STORE = "check that the store runs and its address is right, with `kip30 doctor`"

_RULES: tuple[tuple[type[Kip30Error], Status, str], ...] = (
    (KeyExistsError, Status.REFUSED, "`kip30 kv update` replaces its value"),
    (KeyMissingError, Status.REFUSED, "`kip30 kv list NAMESPACE` lists those that exist"),
    (VersionConflictError, Status.REFUSED, "another client has written it: read it again"),
    (FencedInstanceError, Status.REFUSED, "give each process of a group its own --instance"),
    (IllegalGenerationError, Status.REFUSED, "stop working on it"),
    (FencedError, Status.REFUSED, "the holder of that epoch must stop acting as leader"),
    (GuardError, Status.REFUSED, "another client has written the guarding key: read it again"),
    (GroupError, Status.REFUSED, "every process of a group must divide the same list"),
    (GroupNotEmptyError, Status.REFUSED, "end its processes first"),
    (BannedError, Status.REFUSED, "`kip30 group admit GROUP ID` lifts the ban"),
    (MemberExistsError, Status.REFUSED, _OTHER_ID),
    (NotElectedError, Status.NOT_ELECTED, "try again, or allow more time"),
    (AuthenticationError, Status.UNAVAILABLE, "`kip30 config --effective` shows the settings"),
    (StoreError, Status.UNAVAILABLE, ""),
    (UnavailableError, Status.UNAVAILABLE, _CHECK_STORE),
    (ClosedError, Status.UNAVAILABLE, ""),
    (DefiniteError, Status.REFUSED, ""),
    (OutcomeUnknownError, Status.UNKNOWN, "it may have been done: read before you try again"),
    (UnsupportedError, Status.UNSUPPORTED, "`kip30 backends` lists what each store offers"),
    (UsageError, Status.USAGE, ""),
)


_NAMES_COMMAND = "`"
"""Sign that an error's text itself names the command that helps."""


class _LogOnStderr(logging.Handler):
    @override
    def emit(self, record: logging.LogRecord) -> None:
        to_stderr(self.format(record))


def is_debugging() -> bool:
    """Return whether ``KIP30_DEBUG`` asks for tracebacks and the log."""
    return os.environ.get("KIP30_DEBUG", "0") not in {"", "0"}


def set_up_logging() -> None:
    """Send the log of kip30 and of the stores' libraries to stderr if debugging, else nowhere."""
    if is_debugging():
        logging.basicConfig(level=logging.DEBUG, handlers=[_LogOnStderr()])
    else:
        logging.getLogger().addHandler(logging.NullHandler())


def say(line: str) -> None:
    """Print a line that is not data on stderr, escaped as data are; a closed stderr is ignored."""
    to_stderr(f"kip30: {_output.escaped(line)}")


def guarded(run: Callable[[], object]) -> int:
    """Call *run* and return an exit code: the one it returns, or that of what it raises."""
    try:
        status = run()
    except click.exceptions.Exit as early:
        return early.exit_code
    except BrokenPipeError:
        return reader_gone()
    except SystemExit:  # of a signal
        _forget_unread()
        raise
    except (KeyboardInterrupt, click.Abort):
        _forget_unread()
        return Status.INTERRUPTED
    except Exception as error:  # noqa: BLE001  a command line shows no traceback
        return report(error)
    return status if isinstance(status, int) else Status.OK


def reader_gone() -> Status:
    """Return the exit code of a command whose output has no reader any longer; print no more."""
    _forget_output()
    return Status.OK


def explain(error: Exception) -> CommandFailure:
    """Return what to tell the operator about *error*."""
    what, advice, status = _explained(error)
    return CommandFailure("; ".join(what.rstrip(".\n").splitlines()), advice, status)


def _explained(error: Exception) -> CommandFailure:
    if isinstance(error, click.ClickException):
        return CommandFailure(error.format_message(), _help_for(error), Status.USAGE)
    if isinstance(error, OSError) and not isinstance(error, Kip30Error):
        return CommandFailure(_os_message(error), "", Status.SYSTEM)
    for kind, status, advice in _RULES:
        if isinstance(error, kind):
            what = str(error)
            return CommandFailure(what, "" if _NAMES_COMMAND in what else advice, status)
    # Without its text, which is not ours and may hold anything.
    what = f"unexpected {type(error).__name__}"
    return CommandFailure(what, "KIP30_DEBUG=1 shows where; please report it", Status.INTERNAL)


def report(error: Exception, subject: str = "") -> Status:
    """Print *error* on stderr, as JSON if that was asked for, and return its exit code.

    Args:
        error: The error.
        subject: What failed, for a command that does several things; it begins the message.
    """
    if is_debugging():
        to_stderr("".join(traceback.format_exception(error)).rstrip())
    failure = explain(error)
    if subject:
        failure = failure._replace(what=f"{subject}: {failure.what}")
    if failure.status is Status.SYSTEM:
        _forget_output()
    if _output.is_json_wanted() or _asks_for_json(error):
        to_stderr(json.dumps({"error": _record(error, failure)}))
    else:
        say(f"{failure.what} — {failure.advice}" if failure.advice else failure.what)
    return failure.status


def _record(error: Exception, failure: CommandFailure) -> dict[str, str | int]:
    return {
        "kind": failure.status.name.lower(),
        "type": type(error).__name__,
        "message": failure.what,
        "advice": failure.advice,
        "exit": int(failure.status),
    }


def _asks_for_json(error: Exception) -> bool:
    """Return whether a call that could not be parsed was to print JSON.

    If it has no command that exists, ``--json`` and ``-o`` are taken for options all the same.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    words = list(takewhile(lambda word: word != "--", sys.argv[1:]))
    if context is None or not _output.ask_for_objects(words):
        return False
    command = context.command
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(context, word) or command
    offers = any(one.name == "as_json" for one in command.params)
    return offers or isinstance(command, click.Group)


def _help_for(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if isinstance(context, click.Context) else "kip30"
    dash = "write `--` before a value that begins with `-`; " if _lacks_value(error) else ""
    return f"{dash}see `{path} --help`"


def _lacks_value(error: click.ClickException) -> bool:
    """Return whether a value may have been taken for an option."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return False
    return any(one.name == "value" for one in error.ctx.command.params)


def _os_message(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or type(error).__name__}"


def _forget_output() -> None:
    """Prevent a second attempt, and a second error, for output that could not be written."""
    with suppress(io.UnsupportedOperation):
        discard(sys.stdout.fileno())


def _forget_unread() -> None:
    """Prevent a second attempt, at exit, for output that a signal has interrupted.

    That one would wait without limit for a reader that does not read. Every command flushes what
    it prints, so nothing else is lost. Messages may be on their way to a reader that does read.
    """
    _forget_output()
    with suppress(io.UnsupportedOperation):
        descriptor = sys.stderr.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if not poll.poll(0):
            discard(descriptor)
