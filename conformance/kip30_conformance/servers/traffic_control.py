"""The faults that a proxy injects into passing bytes, and its counts."""

import asyncio
import random
from dataclasses import asdict, dataclass, field
from typing import Any

BURST_BYTES = 65_536
_chance = random.SystemRandom()


@dataclass(slots=True)
class ByteCounts:
    """Bytes of one direction: passed, dropped, and late because they were held."""

    forwarded: int = 0
    dropped: int = 0
    held: int = 0


class Lane:
    """One direction of a route and its faults.

    Attributes:
        dropping: Bytes are read and dropped.
        truncating: Half of the next bytes are let through, and the connection is reset.
    """

    def __init__(self) -> None:
        """Start without faults."""
        self.tally = ByteCounts()
        self._flowing = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Let everything through from now on."""
        self.dropping = self.truncating = False
        self._seconds = self._jitter = 0.0
        self._bytes_per_second = 0
        self._flowing.set()

    def hold(self) -> None:
        """Let nothing through, and drop nothing."""
        self._flowing.clear()

    def delay(self, seconds: float, jitter: float) -> None:
        """Let bytes through after *seconds*, give or take up to *jitter*."""
        self._seconds, self._jitter = seconds, jitter

    def narrow(self, bytes_per_second: int) -> None:
        """Limit the number of bytes per second."""
        self._bytes_per_second = bytes_per_second

    @property
    def burst_bytes(self) -> int:
        """The number of bytes to read at once."""
        return max(1, self._bytes_per_second // 20) if self._bytes_per_second else BURST_BYTES

    async def admit(self, burst: bytes) -> None:
        """Return when *burst* may pass."""
        if not self._flowing.is_set():
            self.tally.held += len(burst)
            await self._flowing.wait()
        seconds = self._seconds + _chance.uniform(-self._jitter, self._jitter)
        if self._bytes_per_second:
            seconds += len(burst) / self._bytes_per_second
        if seconds > 0:
            await asyncio.sleep(seconds)


@dataclass
class Traffic:
    """Both directions of a route."""

    to_client: Lane = field(default_factory=Lane)
    to_server: Lane = field(default_factory=Lane)
    connections: int = 0
    resets: int = 0
    round_trips: int = 0

    def lanes(self, toward: str | None = None) -> list[Lane]:
        """Return the lane *toward* ``client`` or ``server``, or both."""
        both = {"client": self.to_client, "server": self.to_server}
        return list(both.values()) if toward is None else [both[toward]]

    def counted(self) -> dict[str, Any]:
        """Return all counts, for JSON."""
        return {
            "connections": self.connections,
            "resets": self.resets,
            "round_trips": self.round_trips,
            "to_client": asdict(self.to_client.tally),
            "to_server": asdict(self.to_server.tally),
        }
