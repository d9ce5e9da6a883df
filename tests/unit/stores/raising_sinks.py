"""A sink that raises, as for lack of memory: it gets the same state again, and others go on."""

from contextlib import closing

from kip30.driver.records import Kind, Snapshot, Target
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open


def expect_the_state_again(open_client: Open, state: str) -> None:
    """Watch a value with a sink that raises when the value is *state*, "first" or "second"."""
    client = open_client(**PATIENT)
    storage, observe = client.storage(), client.backend.observe
    heard, others, raised = list[bytes](), list[bytes](), list[bytes]()

    def raises_once(snapshot: Snapshot) -> None:
        data = snapshot.entries["k"].data
        if data == state.encode() and not raised:
            raised.append(data)
            raise MemoryError
        heard.append(data)

    storage.put("k", "first")
    storage.put("other", "1")
    target, other = Target(Kind.VALUE, "", "k"), Target(Kind.VALUE, "", "other")
    with (
        closing(observe.watch(target, raises_once)),
        closing(observe.watch(other, lambda now: others.append(now.entries["other"].data))),
    ):
        eventually(lambda: heard == [b"first"] and others, what="the first states")
        storage.update("k", "second")
        eventually(lambda: heard == [b"first", b"second"], what="the second state")
        storage.update("other", "2")
        eventually(lambda: others[-1] == b"2", what="the change of the other")
        assert raised == [state.encode()]
