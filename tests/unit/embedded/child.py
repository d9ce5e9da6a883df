"""A process with a backend of its own: child.py DIRECTORY LIVENESS SESSION_SECONDS COMMAND...

Commands: ``lead SERVICE ID``, ``join GROUP ID``, ``write KEY TIMES``, ``count KEY TIMES``. It says
a line once that is done, then reads commands, one a line: ``write KEY``, ``close``.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from kip30.driver import Context
from kip30.driver.clock import SystemClock
from kip30.driver.records import Claim, Condition, HeldByOther, Write
from kip30.errors import VersionConflictError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings


def open_backend(directory: str, liveness: str, session: str) -> EmbeddedBackend:
    context = Context(
        clock=SystemClock(),
        namespace="root",
        session_timeout_seconds=float(session),
        operation_timeout_seconds=10,
        connect_timeout_seconds=10,
        margin_seconds=float(session) / 10,
    )
    settings = EmbeddedSettings(directory=Path(directory), liveness=liveness)
    return EmbeddedBackend(context, settings)


def lead(backend: EmbeddedBackend, service: str, candidate: str) -> str:
    claim: Claim | HeldByOther = backend.election.claim(
        service, candidate, f"n{os.getpid()}", b""
    ).result()
    return f"leads {claim.entry.version}" if isinstance(claim, Claim) else "waits"


def join(backend: EmbeddedBackend, group: str, member: str) -> str:
    claim = backend.membership.claim(group, member, f"n{os.getpid()}", b"").result()
    return f"joined {claim.entry.version}"


def write(backend: EmbeddedBackend, key: str, times: str = "1") -> str:
    for number in range(int(times)):
        data = str(number).encode()
        backend.storage.write(Write(Key("", key), "n", data, Condition.ANY)).result()
    return f"wrote {times}"


def count(backend: EmbeddedBackend, key: str, times: str) -> str:
    """Increase the number under *key* by an optimistic loop, *times* times."""
    done = 0
    while done < int(times):
        (entry,) = backend.storage.read([Key("", key)]).result()
        assert entry is not None
        data = str(int(entry.data) + 1).encode()
        try:
            backend.storage.write(Write(Key("", key), "n", data, entry.version)).result()
        except VersionConflictError:
            continue
        done += 1
    return f"counted {times}"


COMMANDS: dict[str, Callable[..., str]] = {
    "lead": lead,
    "join": join,
    "write": write,
    "count": count,
}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    directory, liveness, session, *words = sys.argv[1:]
    backend = open_backend(directory, liveness, session)
    say(COMMANDS[words[0]](backend, *words[1:]))
    for line in sys.stdin:
        name, *rest = line.split()
        if name == "close":
            break
        say(COMMANDS[name](backend, *rest))
    backend.close()
    say("closed")


if __name__ == "__main__":
    main()
