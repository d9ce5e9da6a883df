"""The descriptors that a command inherits, as it would from a shell."""

import os

_LAST_STANDARD = 2
_FOLDER = "/proc/self/fd"


def inherited_descriptors() -> tuple[int, ...]:
    """Return the descriptors above 2 that this process got from its parent.

    To be called before anything else opens files: it takes every descriptor that a program
    started now would inherit. Python's own are never among these, those of C libraries may be.
    """
    try:
        numbers = sorted(int(name) for name in os.listdir(_FOLDER))  # noqa: PTH208  no paths wanted
    except FileNotFoundError:  # no Linux, so no runner either
        return ()
    return tuple(number for number in numbers if number > _LAST_STANDARD and _is_passed_on(number))


def _is_passed_on(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # the descriptor through which the folder was read
        return False
