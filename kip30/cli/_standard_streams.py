"""Standard streams as kip30 needs them: open, and written as a whole."""

import io
import os
import sys
from pathlib import Path

_FLAGS = (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)
"""Modes of the files that replace stdin, stdout and stderr: using the first two is an error."""


def occupy_standard_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise the next file or connection that is opened would get its descriptor: output would go
    into the store's database, and a command of ``kip30 run`` would inherit a connection. Reading
    such a stdin and writing such a stdout fails; what goes to such a stderr is lost.
    """
    for descriptor, flags in enumerate(_FLAGS):
        if not _is_open(descriptor):
            _occupy(descriptor, flags)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  stays open
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  stays open


def buffer_output() -> None:
    """Put a buffer before stdout if Python was started without one, as by ``PYTHONUNBUFFERED``.

    Without one a write that the system cuts short, because the disk is full, is no error: the rest
    would be lost. Every line is flushed all the same.
    """
    stdout = sys.stdout
    if isinstance(getattr(stdout, "buffer", None), io.RawIOBase):
        encoding, errors = stdout.encoding, stdout.errors
        sys.stdout = open(1, "w", 1, encoding, errors, closefd=False)  # noqa: SIM115  stays open


def discard(descriptor: int) -> None:
    """Let all that is written to *descriptor* from now on, and what is in buffers, be lost."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _occupy(descriptor: int, flags: int) -> None:
    opened = os.open(os.devnull, flags)
    os.dup2(opened, descriptor)  # inheritable, as standard streams are
    if opened != descriptor:
        os.close(opened)
    else:
        os.set_inheritable(descriptor, True)  # noqa: FBT003  positional only
