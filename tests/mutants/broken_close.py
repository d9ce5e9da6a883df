"""An embedded store that does not clear up."""

import threading

from kip30.driver import Context
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings


class CloseLeaksThread(EmbeddedBackend):
    """Starts a thread and never ends it."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        threading.Thread(target=threading.Event().wait, name="leaked", daemon=True).start()
