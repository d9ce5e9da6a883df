import signal

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("kip30_conformance")

# A shell has what it starts in the background ignore Ctrl-C, and the runners under test inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example takes as long as the machine lets it.
settings.register_profile("kip30", deadline=None)
settings.load_profile("kip30")
