"""A task of a run in a process of its own: applying_main.py PROPERTIES, as JSON.

Each line it reads is a command: ``drive RUN``, ``create RUN FROM UNTIL RATE``. It answers a line to
each: the epoch, or how many records had which outcome, as JSON.
"""

import json
import sys
from collections import Counter
from contextlib import ExitStack

from kip30 import PluginLocator
from kip30.driver.records import Fence
from kip30.pipeline.write.applier import Applier, NewRecord
from kip30.pipeline.write.run_leader import RunLeader


def records(begin: int, end: int) -> list[NewRecord]:
    """Return the same records in every process."""
    return [
        NewRecord(f"n/{number:04d}", b"data %d" % number, str(number))
        for number in range(begin, end)
    ]


class Task:
    def __init__(self, client: PluginLocator, held: ExitStack) -> None:
        self._client = client
        self._held = held
        self._fence: Fence | None = None

    def drive(self, run: str) -> int:
        leader = self._held.enter_context(RunLeader(self._client, run))
        self._fence = leader.fence()
        return self._fence.epoch

    def create(self, run: str, begin: str, end: str, rate: str) -> dict[str, int]:
        limit = float(rate) or None
        writer = Applier(self._client.backend, run, seconds=10, fence=self._fence, rate=limit)
        applied = writer.create(records(int(begin), int(end)))
        return Counter(one.outcome.value for one in applied)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    with PluginLocator().startup(json.loads(sys.argv[1])) as client, ExitStack() as held:
        task = Task(client, held)
        say("open")
        for line in sys.stdin:
            verb, *words = line.split()
            say(json.dumps(getattr(task, verb)(*words)))


if __name__ == "__main__":
    main()
