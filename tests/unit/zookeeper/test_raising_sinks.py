"""A sink that raises."""

import pytest

from tests.unit.clients import Open
from tests.unit.stores.raising_sinks import expect_the_state_again


@pytest.mark.parametrize("state", ["first", "second"])
def test_a_sink_that_raised_hears_the_same_state_again_and_others_go_on(
    open_client: Open, state: str
) -> None:
    expect_the_state_again(open_client, state)
