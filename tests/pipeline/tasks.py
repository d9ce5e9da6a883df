"""Tasks in processes of their own, which can be stopped and killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from kip30.config import Written
from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import is_readable, time_scale

_MAIN = Path(__file__).with_name("applying_main.py")
_ANSWER_SECONDS = 20.0


class Task:
    """A process that runs `applying_main`. It ends with its ``with`` block."""

    def __init__(self, properties: Mapping[str, Written]) -> None:
        self._stop = ProcessStop(properties)
        texts = json.dumps({key: str(value) for key, value in properties.items()})
        self._process = subprocess.Popen(
            [sys.executable, str(_MAIN), texts], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._line() == b"open"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def call(self, *words: object) -> Any:
        """Do one command and return its answer."""
        self.send(*words)
        return self.answer()

    def send(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self._line())

    def stop(self) -> None:
        """Stop it (SIGSTOP), and wait until the kernel says that it has stopped, in no write."""
        self._stop.stop(self._process.pid)

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL), unless it is gone, and wait until it is."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        assert is_readable(stdout.fileno(), _ANSWER_SECONDS * time_scale()), "no answer"
        return stdout.readline().strip()
