"""The order to start a command: its program and arguments, and the changes to its environment.

It has a file of its own, because an environment is longer than a packet may be. All of it is text
that ends with a NUL, which neither an argument nor a variable can contain.
"""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_END = b"\0"
_ASSIGN = "="


class StartOrder(NamedTuple):
    """A command to start.

    Attributes:
        command: Program and arguments.
        changes: Variables to set, or not to pass on if None.
        uses_terminal: Whether the command stays in the session of the runner, with its terminal.
    """

    command: Sequence[str]
    changes: Mapping[str, str | None]
    uses_terminal: bool = False

    def changed(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return *environment* with the changes."""
        merged = {**environment, **self.changes}
        return {name: value for name, value in merged.items() if value is not None}


def encode(order: StartOrder) -> bytes:
    """Return *order* as the content of a file.

    Raises:
        ValueError: A text has a NUL in it.
    """
    changes = (
        name if value is None else f"{name}{_ASSIGN}{value}"
        for name, value in order.changes.items()
    )
    head = (str(int(order.uses_terminal)), str(len(order.command)))
    texts = [os.fsencode(text) for text in (*head, *order.command, *changes)]
    if any(_END in text for text in texts):
        raise ValueError("a command and its environment cannot contain a NUL")
    return b"".join(text + _END for text in texts)


def read(descriptor: int) -> StartOrder:
    """Return the order in the file behind *descriptor*."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    uses_terminal, count, *texts = (os.fsdecode(text) for text in content.split(_END)[:-1])
    command, changes = texts[: int(count)], texts[int(count) :]
    divided = (text.partition(_ASSIGN) for text in changes)
    settings = {name: value if sign else None for name, sign, value in divided}
    return StartOrder(command, settings, uses_terminal=bool(int(uses_terminal)))
