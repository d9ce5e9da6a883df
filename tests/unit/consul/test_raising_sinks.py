"""A sink that raises."""

from contextlib import closing

import pytest

from kip30.driver.records import Kind, Snapshot, Target
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.raising_sinks import expect_the_state_again

NONCE = "00" * 16


@pytest.mark.parametrize("state", ["first", "second"])
def test_a_sink_that_raised_hears_the_same_state_again_and_others_go_on(
    open_client: Open, state: str
) -> None:
    expect_the_state_again(open_client, state)


def test_a_new_member_is_read_though_the_sink_of_an_earlier_one_raised(open_client: Open) -> None:
    """A renewal reads all members, too, but it is minutes away here."""
    patient = PATIENT | {"plugin.session.timeout.ms": 600_000}
    driver = open_client(**patient).backend
    raised, heard = list[Snapshot](), list[Snapshot]()

    def raises(state: Snapshot) -> None:
        raised.append(state)
        raise MemoryError

    for member in ("m", "n"):
        driver.membership.claim("g", member, NONCE, b"").result()
    watch = driver.observe.watch
    with closing(watch(Target(Kind.MEMBER, "g", "m"), raises)):
        eventually(lambda: raised)
        with closing(watch(Target(Kind.MEMBER, "g", "n"), heard.append)):
            eventually(lambda: heard)
