"""The tests of kip30."""

import pytest

# Before any module of the tests imports it.
pytest.register_assert_rewrite("kip30_conformance", "tests.unit.stores")
