"""A client that sends requests through a balancer, one after the other, all the time."""

import http.client
import threading
import time
from collections import Counter
from contextlib import closing
from typing import Self

NO_ANSWER = "no answer"
_PAUSE_SECONDS = 0.005
_PATIENCE_SECONDS = 30.0


class Client:
    """A thread that sends requests. Leaving the ``with`` block ends it.

    Attributes:
        statuses: How many requests were answered with each status, or with `NO_ANSWER`.
    """

    def __init__(self, port: int, *, keeps_connection: bool) -> None:
        """Send to *port*, over one connection for as long as it lasts, or a new one each time."""
        self.statuses: Counter[int | str] = Counter()
        self._port = port
        self._keeps_connection = keeps_connection
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._send_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _send_on(self) -> None:
        while not self._ends.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, _PATIENCE_SECONDS)
            with closing(connection):
                try:
                    self._send_over(connection)
                except (OSError, http.client.HTTPException):
                    self.statuses[NO_ANSWER] += 1
                    time.sleep(_PAUSE_SECONDS)

    def _send_over(self, connection: http.client.HTTPConnection) -> None:
        lasts = True
        while lasts and not self._ends.wait(_PAUSE_SECONDS):
            connection.request("GET", "/")
            response = connection.getresponse()
            response.read()
            self.statuses[response.status] += 1
            lasts = self._keeps_connection and not response.will_close
