"""Parsers and defaults of values on the command line."""

import math
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from typing_extensions import override

from kip30.config.secrets import key_alone
from kip30.driver.records import Fence, check_fence
from kip30.errors import UsageError

if TYPE_CHECKING:
    from kip30.coordinator import ShareGuard

_FENCE = re.compile(r"(.+):([0-9]{1,19})", re.DOTALL)
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(s|min|h|d)")
_UNITS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}

_LARGEST_INPUT = 16 * 1024 * 1024
"""Bytes that are read at most: more than any store takes, which refuses what is too large for it.

Input may have no end.
"""

_NO_STDIN = "`-` reads standard input, which is closed"

F = TypeVar("F", bound=Callable[..., Any])


class FilePath(click.Path):
    """The path of a file or folder; an empty one would mean the working directory."""

    def __init__(self, **options: bool) -> None:
        """Convert values to `Path`; *options* are those of `click.Path`."""
        super().__init__(path_type=Path, **options)

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(
                "the name of the file is empty: is a variable of the shell not set?", param, ctx
            )
        return super().convert(value, param, ctx)


class Input(click.File):
    """A file to read, whose bytes are wanted; ``-`` is stdin."""

    def __init__(self) -> None:
        """Convert names to open files."""
        super().__init__("rb")

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail(_NO_STDIN, param, ctx)
        if isinstance(value, str) and value != "-":
            path = FilePath().convert(value, param, ctx)
            value = path.open("rb")  # click would call a file that cannot be read a wrong call
            if ctx is not None:
                ctx.call_on_close(value.close)
        return super().convert(value, param, ctx)


def nodes(command: F) -> F:
    """Give *command* the option for the number of servers to start."""
    option = click.option(
        "--nodes",
        type=int,
        default=1,
        show_default=True,
        help="Number of servers: 1 or 3.",
    )
    return option(command)


def setting(written: str) -> tuple[str, str]:
    """Return the key and the value of ``key=value``."""
    key, equals, value = written.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{key_alone(written)!r} is not a setting: write KEY=VALUE")
    return key.strip(), value


def fence(written: str) -> Fence:
    """Return the fence ``service:epoch``; the service may hold colons itself."""
    parts = _FENCE.fullmatch(written)
    if parts is None:
        raise click.BadParameter(f"{written!r} is not a fence: write SERVICE:EPOCH, as billing:12")
    try:
        return check_fence(Fence(parts[1], int(parts[2])))
    except UsageError as error:
        raise click.BadParameter(str(error)) from error


def guard(written: str) -> "ShareGuard":
    """Return the guard that ``KIP30_GUARD`` has."""
    from kip30.coordinator import parse_guard  # noqa: PLC0415  slow to import

    try:
        return parse_guard(written)
    except UsageError as error:
        raise click.BadParameter(str(error)) from error


def value(written: str) -> bytes:
    """Return the bytes of the argument, or of all of stdin if it is ``-``.

    Nothing is read for a shell that completes the line: stdin is the terminal then.
    """
    if written != "-":
        return os.fsencode(written)
    context = click.get_current_context(silent=True)
    if context is not None and context.resilient_parsing:
        return b""
    if sys.stdin is None:
        raise click.BadParameter(_NO_STDIN)
    read = sys.stdin.buffer.read(_LARGEST_INPUT + 1)
    if len(read) > _LARGEST_INPUT:
        raise click.BadParameter(f"standard input has more than {_LARGEST_INPUT} bytes")
    return read


def seconds(written: str | float) -> float:
    """Return a time to wait."""
    return _duration(written, "seconds")


def minutes(written: str | float) -> float:
    """Return a duration, which must be above 0."""
    if not (number := _duration(written, "minutes")):
        raise click.BadParameter("0 minutes is too short")
    return number


def age(written: str) -> float:
    """Return the seconds of a time with its unit, as ``30d``."""
    parts = _AGE.fullmatch(written)
    if parts is None:
        raise click.BadParameter(
            f"{written!r} is not a time: write a number with s, min, h or d, 9 digits at most"
        )
    return float(parts[1]) * _UNITS[parts[2]]


def duration(written: str) -> float:
    """Return the seconds of a time with its unit, as `age`, which must be above 0."""
    if not (number := age(written)):
        raise click.BadParameter(f"{written!r} is too short")
    return number


def this_process() -> str:
    """Return the id that a member or candidate has by default: host and process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _duration(written: str | float, unit: str) -> float:
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{written!r} is not a number of {unit}, 0 or more")
    return number
