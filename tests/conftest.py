import signal

import pytest

pytest.register_assert_rewrite("kip30_conformance")

# A shell has what it starts in the background ignore Ctrl-C, and the runners under test inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
