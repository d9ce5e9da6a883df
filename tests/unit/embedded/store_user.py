"""A process that writes and leads until its standard input ends: store_user.py DIRECTORY TAG MS.

It says line by line: ``wrote KEY`` once that is acknowledged, ``failed WHY``, and ``led EPOCH
TIME`` for each moment at which its leadership is valid.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TypeVar

from kip30 import Kip30Error, PluginLocator, Storage

T = TypeVar("T")


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def write(storage: Storage[str], tag: str) -> None:
    number = 0
    while True:
        number += 1
        key = f"k/{tag}{number}"
        try:
            storage.set(key, "x" * 2000)
            say("wrote", key)
        except Kip30Error as error:
            say("failed", str(error))
            time.sleep(0.02)


def insist(call: Callable[[], T]) -> T:
    """Return the result of *call*, repeated until it raises no error of kip30; say each error."""
    while True:
        try:
            return call()
        except Kip30Error as error:
            say("failed", str(error))
            time.sleep(0.02)


def main() -> None:
    directory, tag, session_ms = sys.argv[1:]
    config: dict[str, str | Path] = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": Path(directory),
        "plugin.session.timeout.ms": session_ms,
        "plugin.connect.timeout.ms": "500",
    }
    locator = insist(lambda: PluginLocator().startup(config))
    election = locator.leader_election("s")
    insist(lambda: election.nominate(tag, ""))
    Thread(target=write, args=(locator.storage(), tag), daemon=True).start()
    while True:
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        term = election.leadership(tag)
        if term is not None and term.is_valid():
            say("led", term.epoch, before)
        time.sleep(0.002)


def run() -> None:
    """Call `main`; if it fails the process ends, or its reader would wait for lines for ever."""
    try:
        main()
    except BaseException:  # noqa: BLE001  its reader must not wait
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    Thread(target=run, daemon=True).start()
    sys.stdin.read()
