"""A sink that raises."""

import pytest

from kip30.driver.kit.lifecycle import do_nothing
from kip30.driver.records import Kind, Target
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.raising_sinks import expect_the_state_again


@pytest.mark.parametrize("state", ["first", "second"])
@pytest.mark.parametrize("stores", ["one", "two"])
def test_a_sink_that_raised_hears_the_same_state_again_and_others_go_on(
    open_client: Open, stores: str, state: str
) -> None:
    if stores == "two":  # which share the thread that delivers
        open_client(**PATIENT).backend.observe.watch(Target(Kind.GROUP, "g"), do_nothing)
    expect_the_state_again(open_client, state)
