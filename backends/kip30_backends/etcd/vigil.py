"""Noticing that a server fell silent, where pings are not ours to choose: asking it something."""

import logging
from concurrent.futures import Future

from kip30.driver.kit.timer import Timer
from kip30.errors import UnavailableError
from kip30_backends.etcd import requests
from kip30_backends.etcd.call import Ask
from kip30_backends.etcd.calls import Calls, acknowledged
from kip30_backends.etcd.channel import RANGE
from kip30_backends.etcd.stream import Stream

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


class Vigil:
    """Closes a stream once its server does not answer a call on the same channel either."""

    def __init__(self, stream: Stream, calls: Calls, pulse: Timer) -> None:
        """Be about to watch over *stream*."""
        self._stream = stream
        self._calls = calls
        self._pulse = pulse

    def keep(self) -> None:
        """Ask after a while, and again until *stream* is closed."""
        self._pulse.after(_EVERY_SECONDS, self._ask)

    def _ask(self) -> None:
        if not self._stream.is_closed:
            root = self._calls.access.prefix.encode()
            request = requests.page(root, b"", limit=1, names_only=True)
            self._calls.send(Ask(RANGE, request, acknowledged)).add_done_callback(self._answered)

    def _answered(self, answer: Future[None]) -> None:
        error = answer.exception()
        if isinstance(error, UnavailableError):
            _log.info("listening anew, for the server fell silent: %s", error)
            self._stream.close()
        else:
            self.keep()
