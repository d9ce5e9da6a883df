"""A process of `multiprocessing` that joins a group and ends without a close.

Arguments: a start method, the group, and the configuration as JSON.
"""

import json
import multiprocessing
import sys
import threading
import time
from typing import Any

from kip30 import PluginLocator

MEMBERS = ("main", "late")
_kept: list[PluginLocator] = []


def join(properties: dict[str, Any], group: str) -> None:
    """Join as the target of a process, and return; another thread holds a member for longer."""
    first, second = (PluginLocator().startup(properties) for _ in MEMBERS)
    first.group_membership(group).join(MEMBERS[0], "")
    late = second.group_membership(group).join(MEMBERS[1], "")
    _kept.extend((first, second))
    threading.Thread(target=_work, args=[late]).start()


def _work(member: Any) -> None:
    """Work as a member after the target has returned; the process waits for this thread."""
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        member.check()
        time.sleep(0.01)
    sys.stdout.write("worked to the end\n")
    sys.stdout.flush()


def main() -> None:
    """Run the process, and end as it does."""
    method, group, properties = sys.argv[1:]
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=join, args=[json.loads(properties), group])
    process.start()
    process.join()
    sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
