"""Run the commands of a recipe."""

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import InstallationError
from .progress import Progress

STILL_BUSY_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where commands run.

    Attributes:
        folder: Their working directory.
        log: What they print is added to this file.
        lock: A file descriptor that they inherit. Should this process be killed, the lock is
            held until they have ended as well, so that nobody works in *folder* beside them.
    """

    folder: Path
    log: Path
    environment: Mapping[str, str]
    lock: int
    progress: Progress

    async def run(self, command: Sequence[str]) -> None:
        """Run *command*; ended with all its descendants if this is cancelled.

        Raises:
            InstallationError: It failed.
        """
        self.progress.say(shlex.join(command))
        process = await self._start(command)
        try:
            await self._wait(process, command[0])
        finally:
            await _end(process)
        if process.returncode:
            raise InstallationError(
                f"{command[0]} ended with status {process.returncode}: "
                f"{_complaint(self.log)} (all of it: {self.log})"
            )

    async def _start(self, command: Sequence[str]) -> Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                start_new_session=True,
                pass_fds=(self.lock,),
            )

    async def _wait(self, process: Process, program: str) -> None:
        ended = asyncio.ensure_future(process.wait())
        while not (await asyncio.wait([ended], timeout=STILL_BUSY_SECONDS))[0]:
            self.progress.say(f"{program} is still busy")


async def _end(process: Process) -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _complaint(log: Path) -> str:
    """Return the first line of *log* that speaks of an error, else the last one."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return [*errors[:1], *lines[-1:], "it said nothing"][0].strip()
