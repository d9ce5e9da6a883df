"""Opens a store again and again, each time with one more file descriptor left to this process.

Reads the configuration as JSON, and prints the message of each refusal. An error that is not one of
kip30's, or a library that aborts, ends it.
"""

import contextlib
import json
import os
import resource
import sys
from collections.abc import Generator, Mapping

from kip30 import Kip30Error, PluginLocator

_LIMIT = 64
_MOST_LEFT = 12


@contextlib.contextmanager
def descriptors_left(number: int) -> Generator[None]:
    """Leave this process *number* descriptors for the time of the block."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as held:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        resource.setrlimit(resource.RLIMIT_NOFILE, (_LIMIT, hard))
        taken: list[int] = []
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for one in taken[:number]:
            os.close(one)
        for one in taken[number:]:
            held.callback(os.close, one)
        yield


def use(properties: Mapping[str, str]) -> None:
    with PluginLocator().startup(properties) as locator:
        locator.storage().set("a", "b")


def main() -> None:
    properties = json.load(sys.stdin)
    use(properties)
    for number in range(_MOST_LEFT):
        try:
            with descriptors_left(number):
                use(properties)
        except Kip30Error as error:
            sys.stdout.write(f"{error}\n")
    use(properties)


if __name__ == "__main__":
    main()
