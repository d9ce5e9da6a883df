"""How what is written on the command line is read, and what holds if nothing is."""

import math
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kip30.errors import InvalidNameError
from kip30.names import check_id
from kip30.records import Fence

F = TypeVar("F", bound=Callable[..., Any])


def nodes(command: F) -> F:
    """Give *command* the option of how many servers to start."""
    option = click.option(
        "--nodes",
        type=int,
        default=1,
        show_default=True,
        help="How many servers work together: 1 or 3.",
    )
    return option(command)


def setting(written: str) -> tuple[str, str]:
    """Return the key and the value of ``key=value``."""
    key, equals, value = written.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{key!r} is no setting: write KEY=VALUE")
    return key.strip(), value


def fence(written: str) -> Fence:
    """Return the fence ``service:epoch``; the service may hold colons itself."""
    service, _, epoch = written.rpartition(":")
    if not (service and epoch.isdecimal()):
        raise click.BadParameter(f"{written!r} is no fence: write SERVICE:EPOCH, as in billing:12")
    try:
        return Fence(check_id(service, "service"), int(epoch))
    except InvalidNameError as error:
        raise click.BadParameter(str(error)) from error


def value(written: str) -> bytes:
    """Return the bytes of the argument, or of all of stdin if it is ``-``."""
    return sys.stdin.buffer.read() if written == "-" else os.fsencode(written)


def seconds(written: str | float) -> float:
    """Return a time to wait."""
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{written!r} is not a number of seconds, 0 or more")
    return number


def namespace(written: str) -> str:
    """Return a namespace as it is, unless a slash shows that something else was meant.

    Raises:
        InvalidNameError: It ends in a slash.
    """
    if written.endswith("/"):
        raise InvalidNameError(f"namespace {written!r} ends in '/': leave the slash out")
    return written


def this_process() -> str:
    """Return the id that a member or candidate has by default: host and process."""
    return f"{socket.gethostname()}-{os.getpid()}"
