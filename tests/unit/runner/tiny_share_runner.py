"""The runners of shares and of items over a file. Started as a program by the tests.

The test writes the member's share to ``share``; the runner's actions with it are added to
``events``, a word and the time in each line. With ``--each`` it is the runner of items.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from kip30.driver.clock import SystemClock
from kip30.driver.lease import Lease
from kip30.errors import UnavailableError
from kip30.runner import (
    HeldItem,
    HeldShare,
    ItemWorkshare,
    ShareJob,
    Workshare,
    guarded_run,
    inherited_descriptors,
    run_items,
    run_shares,
)

CLOCK = SystemClock()
MARGIN_PART = 10
RENEWALS_PER_TIMEOUT = 3
POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The data that the test has written last.

    Attributes:
        each: The generation of each item, in the order of the list, for the runner of items.
        gone: Those of these that are lost.
    """

    generation: int = 0
    items: Sequence[str] = ()
    each: Mapping[str, int] = field(default_factory=dict[str, int])
    gone: Sequence[str] = ()
    wanted_back: bool = False
    lost: bool = False
    renewed: bool = True
    down: bool = False


class FileShare(HeldShare):
    def __init__(self, given: Given, timeout: float, notify: Callable[[], None]) -> None:
        self._given = given
        margin = timeout / MARGIN_PART
        self.lease = Lease(
            CLOCK, sent_at=CLOCK.now(), timeout_seconds=timeout, margin_seconds=margin
        )
        self._lost, self._wanted_back = threading.Event(), threading.Event()
        self.lease.on_end(self._lost.set)
        self.lease.on_end(notify)

    @property
    @override
    def items(self) -> Sequence[str]:
        return self._given.items

    @property
    @override
    def generation(self) -> int:
        return self._given.generation

    @property
    @override
    def history(self) -> str:
        return ""

    @property
    @override
    def member(self) -> str:
        return "the member"

    @property
    @override
    def key(self) -> str:
        return "the:key"

    @property
    @override
    def wanted_back(self) -> threading.Event:
        return self._wanted_back

    @property
    @override
    def deadline(self) -> float:
        return self.lease.deadline

    @property
    @override
    def timeout_seconds(self) -> float:
        return self.lease.timeout_seconds

    @property
    @override
    def lost(self) -> threading.Event:
        return self._lost

    @override
    def is_valid(self) -> bool:
        return self.lease.is_valid()


class FileItem(FileShare, HeldItem):
    def __init__(self, item: str, given: Given, timeout: float, notify: Callable[[], None]) -> None:
        generation = given.each[item]
        super().__init__(Given(generation=generation, items=[item]), timeout, notify)
        self.item = item
        self._guard_text = str(list(given.each).index(item))

    @property
    @override
    def guard_text(self) -> str:
        return self._guard_text


class ShareFile:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Given:
        return Given(**json.loads((self._folder / "share").read_text()))

    def ask(self) -> Given:
        given = self.read()
        if given.down:
            raise UnavailableError("it is down")
        return given

    def note(self, word: str) -> None:
        with (self._folder / "events").open("a") as events:
            events.write(f"{word} {time.time()}\n")


class FileWorkshare(Workshare):
    def __init__(self, file: ShareFile, timeout: float) -> None:
        self._file = file
        self._timeout = timeout
        self._share: FileShare | None = None
        self._given_up = 0
        self._notify: Callable[[], None] = print
        threading.Thread(target=self._follow, daemon=True).start()

    @override
    def wait(self, timeout: float) -> HeldShare | None:
        end = CLOCK.now() + timeout
        while CLOCK.now() < end:
            given = self._file.ask()
            if given.items and given.generation > self._given_up:
                self._share = FileShare(given, self._timeout, self._notify)
                return self._share
            time.sleep(POLL_SECONDS)
        return None

    @override
    def call_on_end(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    @override
    def has_tried(self) -> bool:
        return True

    @override
    def share_fd(self) -> int | None:
        return None

    @override
    def give_up(self, share: HeldShare) -> None:
        self._share, self._given_up = None, share.generation
        self._file.note(f"gave-up-{share.generation}")

    @override
    def leave(self) -> None:
        self._file.note("left")

    def _follow(self) -> None:
        due = 0.0
        while True:
            share, given = self._share, self._file.read()
            if share is not None:
                if given.lost:
                    share.lease.end("lost")
                is_over = given.wanted_back or given.generation > share.generation
                if is_over and not share.wanted_back.is_set():
                    share.wanted_back.set()
                    self._notify()
                if given.renewed and CLOCK.now() >= due:
                    share.lease.record_renewal(CLOCK.now())
                    due = CLOCK.now() + self._timeout / RENEWALS_PER_TIMEOUT
            time.sleep(POLL_SECONDS)


class FileItems(ItemWorkshare):
    """Hands an item out again in another generation only, once it was given up."""

    def __init__(self, file: ShareFile, timeout: float) -> None:
        self._file = file
        self._timeout = timeout
        self._held: dict[str, FileItem] = {}
        self._given_up: dict[str, int] = {}
        self._notify: Callable[[], None] = print
        threading.Thread(target=self._follow, daemon=True).start()

    @override
    def wait(self, timeout: float) -> HeldItem | None:
        end = CLOCK.now() + timeout
        while True:
            given = self._file.ask()
            for item in self._ready(given):
                self._held[item] = FileItem(item, given, self._timeout, self._notify)
                return self._held[item]
            if CLOCK.now() >= end:
                return None
            time.sleep(POLL_SECONDS)

    @override
    def call_on_end(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    @override
    def ready(self) -> int:
        return len(self._ready(self._file.read()))

    @override
    def has_tried(self) -> bool:
        return True

    @override
    def share_fd(self) -> int | None:
        return None

    @override
    def give_up(self, share: HeldItem) -> None:
        (item,) = share.items
        self._given_up[item] = share.generation
        del self._held[item]
        self._file.note(f"gave-up-{'_'.join(item.split())}-{share.generation}")

    @override
    def leave(self) -> None:
        self._file.note("left")

    def _ready(self, given: Given) -> list[str]:
        return [
            item
            for item, generation in given.each.items()
            if item not in self._held and generation > self._given_up.get(item, 0)
        ]

    def _follow(self) -> None:
        due = 0.0
        while True:
            given = self._file.read()
            is_due = given.renewed and CLOCK.now() >= due
            for item, share in list(self._held.items()):
                if item in given.gone:
                    share.lease.end("lost")
                is_over = given.each.get(item) != share.generation
                if is_over and not share.wanted_back.is_set():
                    share.wanted_back.set()
                    self._notify()
                if is_due:
                    share.lease.record_renewal(CLOCK.now())
            if is_due:
                due = CLOCK.now() + self._timeout / RENEWALS_PER_TIMEOUT
            time.sleep(POLL_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("timeout", type=float)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--wait", type=float)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--look", type=float, help="the longest time between two looks")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    if given.look is not None:
        guarded_run.LONGEST_LOOK_SECONDS = given.look
    job = ShareJob(
        group="a group",
        command=given.command,
        restart=given.restart,
        wait_seconds=given.wait,
        grace_seconds=given.grace,
        descriptors=inherited_descriptors(),
    )
    file = ShareFile(given.folder)
    if given.each:
        items = FileItems(file, given.timeout)
        return run_items(items, job, most=given.most, say=_say).status
    return run_shares(FileWorkshare(file, given.timeout), job, say=_say).status


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
