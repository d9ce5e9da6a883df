"""ZooKeeper's four letter words: requests that need no session, over connections of their own."""

import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_ANSWER_BYTES = 4096


class FourLetterWords:
    """Sends four letter words to one server, until `cut` ends all of them.

    A server answers only those that its ``4lw.commands.whitelist`` allows.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        """Send each word over a connection that *connect* makes."""
        self._connect = connect
        # The connections whose answer is awaited. Without a lock, because a forked child reads it.
        self._open: set[socket.socket] = set()
        self._is_cut = False

    def status(self) -> dict[str, str]:
        """Return what the server says of itself, line by line; nothing without an answer."""
        return self._pairs(b"srvr", ": ")

    def configuration(self) -> dict[str, str]:
        """Return the server's configuration; nothing without an answer."""
        return self._pairs(b"conf", "=")

    def cut(self) -> None:
        """End the requests under way, which get no answer; none is sent afterwards."""
        self._is_cut = True
        for sock in list(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """In a forked child: close its ends of the connections, which stay open for the parent."""
        for sock in self._open:
            sock.close()

    def _pairs(self, word: bytes, between: str) -> dict[str, str]:
        """Return the lines of the answer to *word*, split at *between*."""
        try:
            lines = self._answer(word).splitlines()
        except OSError:
            return {}
        pairs = (line.partition(between) for line in lines)
        return {key: value for key, found, value in pairs if found}

    def _answer(self, word: bytes) -> str:
        self._require_uncut()
        with self._connect() as sock:
            self._open.add(sock)
            try:
                # Another thread may have cut them before this connection was among them.
                self._require_uncut()
                sock.sendall(word)
                answer = iter(partial(sock.recv, _ANSWER_BYTES), b"")
                return b"".join(answer).decode("utf-8", "replace")
            finally:
                self._open.discard(sock)

    def _require_uncut(self) -> None:
        if self._is_cut:
            raise ConnectionAbortedError("the connection to the server has ended")
