"""The command of a runner: a web server that writes at each request, with the fence of its term.

``python web_server.py HOST PORT KEY=VALUE…``, with the settings of the store. It prints when it
listens, and each request with the moment of its arrival, so that also those are counted whose
answer was lost.
"""

import os
import sys
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from kip30 import FencedError, Kip30Error, PluginLocator, Storage
from kip30.driver.records import Fence

KEY = "web/latest"


class Answerer(BaseHTTPRequestHandler):
    """Answers with 200 after a write, 409 if the store has refused it, and else 503."""

    protocol_version = "HTTP/1.1"  # connections stay open

    def __init__(self, storage: Storage[str], fence: Fence, *arguments: Any) -> None:
        self._storage = storage
        self._fence = fence
        super().__init__(*arguments)

    def do_GET(self) -> None:
        arrived, version = time.time(), "-"
        try:
            version = str(self._storage.set(KEY, str(self._fence.epoch), fence=self._fence))
            status = 200
        except FencedError:
            status = 409
        except Kip30Error:
            status = 503
        _print("answered", self._fence.epoch, status, version, arrived)
        body = str(self._fence.epoch).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *_: object) -> None:
        pass


def _print(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # one write, for threads may meet here
    sys.stdout.flush()


def main() -> None:
    host, port, *settings = sys.argv[1:]
    fence = Fence(os.environ["KIP30_SERVICE"], int(os.environ["KIP30_EPOCH"]))
    with PluginLocator().startup(dict(one.split("=", 1) for one in settings)) as locator:
        answer = partial(Answerer, locator.storage(), fence)
        with ThreadingHTTPServer((host, int(port)), answer) as server:
            _print("ready", fence.epoch, time.time())
            server.serve_forever()


if __name__ == "__main__":
    main()
