"""Opening and closing: G01 to G03, G06 to G12 and G42."""

import gc
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import wait

import pytest

from kip30 import (
    ClosedError,
    ConfigError,
    DefiniteError,
    LifecycleError,
    PluginLocator,
    ValueChange,
)
from kip30.config import Written
from kip30_conformance.clients import multiprocess_end
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import together
from kip30_conformance.clients.every_call import EVERY_CALL, Try, forgotten
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.suite import OpenClient, Suite

every_call = pytest.mark.parametrize(
    "tried", EVERY_CALL, ids=[f"{one.owner.__name__}.{one.method}" for one in EVERY_CALL]
)


class LifecycleTests(Suite):
    """A client opens once, closes for good, and leaves nothing behind."""

    def test_G01_startup_opens(self, client: PluginLocator) -> None:
        """After startup the store answers."""
        version = client.storage().put("k", "v")
        found = client.storage().get("k")
        assert found is not None
        assert (found.value, found.version) == ("v", version)

    def test_G01_second_startup_is_refused(self, harness: Harness, open_client: OpenClient) -> None:
        """A second startup raises LifecycleError, opens nothing and does no harm."""
        client = open_client(**harness.steady)  # a session that is replaced takes a thread
        client.storage().put("k", "v")
        before = resources_held()
        with pytest.raises(LifecycleError):
            client.startup(harness.properties(harness.unique_root()))
        expect_no_more_than(before)
        assert client.storage().fetch("k").result() == "v"

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("plugin.session.timeout.mss", 2000),
            ("plugin.session.timeout.ms", "soon"),
            ("plugin.session.timeout.ms", -1),
            ("plugin.operation.timeout.ms", 3_600_000),
            ("plugin.namespace", ""),
        ],
    )
    def test_G02_wrong_setting(self, harness: Harness, root: str, key: str, value: Written) -> None:
        """A setting that is unknown, unreadable or contradictory raises ConfigError naming it."""
        before = resources_held()
        with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
            PluginLocator().startup(harness.properties(root, **{key: value}))
        expect_no_more_than(before)

    def test_G02_unknown_setting_of_the_store(
        self, harness: Harness, root: str, client: PluginLocator
    ) -> None:
        """An unknown setting of the store itself raises ConfigError naming it."""
        key = f"plugin.{client.backend.name}.no.such.setting"
        with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
            PluginLocator().startup(harness.properties(root, **{key: "x"}))

    def test_G03_unreachable(self, harness: Harness, root: str) -> None:
        """Startup where there is no store fails within the connect timeout and leaves nothing."""
        before, started = resources_held(), time.monotonic()
        nowhere = harness.nowhere(root, **{"plugin.connect.timeout.ms": 1000})
        with nowhere as unreachable, pytest.raises(DefiniteError):
            PluginLocator().startup(unreachable)
        assert time.monotonic() - started <= 1.2 * time_scale()
        expect_no_more_than(before)

    def test_G06_every_method_is_tried(self) -> None:
        """The list of calls that the checks of G06 try covers every public method."""
        assert forgotten() == set()

    @pytest.mark.parametrize("tried", [one for one in EVERY_CALL if one.owner is PluginLocator])
    def test_G06_use_before_startup(self, tried: Try) -> None:
        """A locator that was not started raises LifecycleError."""
        with pytest.raises(LifecycleError):
            tried.on(PluginLocator())()

    @every_call
    def test_G06_use_after_close(self, client: PluginLocator, tried: Try) -> None:
        """After the locator's close every method of everything raises ClosedError at once."""
        call = tried.on(client)
        client.close()
        started = time.monotonic()
        with pytest.raises(ClosedError):
            call()
        assert time.monotonic() - started < 0.5 * time_scale()

    def test_G06_handles_close_one_by_one(self, client: PluginLocator) -> None:
        """A closed handle raises LifecycleError, and its siblings stay open."""
        first, second = client.storage(), client.storage()
        first.close()
        with pytest.raises(LifecycleError):
            first.get("k")
        assert second.get("k") is None

    def test_G07_close_twice(self, client: PluginLocator) -> None:
        """A second close does nothing."""
        client.close()
        client.close()

    def test_G07_close_without_startup(self) -> None:
        """Closing what was never started does nothing."""
        PluginLocator().close()

    def test_G07_close_concurrently(self, harness: Harness, root: str) -> None:
        """Of several closes at once each returns after everything is gone."""
        before = resources_held()
        client = harness.open(root)
        client.group_membership("g").join("m", "")
        client.listener_registry().add_value_change_listener("k", print)
        others = set(threading.enumerate())

        def close() -> set[threading.Thread]:
            client.close()
            return others & {thread for thread in threading.enumerate() if thread.is_alive()}

        main = {thread for thread in others if thread.name in before.threads}
        assert together([close] * 6) == [main] * 6
        expect_no_more_than(before)

    def test_G08_close_ends_futures(self, harness: Harness, client: PluginLocator) -> None:
        """Futures that were pending end by the operation timeout."""
        storage = client.storage()
        futures = [storage.fetch(f"k{number}") for number in range(500)]
        client.close()
        assert not wait(futures, harness.operation_seconds * time_scale()).not_done

    def test_G08_close_ends_unanswered_futures(
        self, harness: Harness, client: PluginLocator
    ) -> None:
        """Futures that the store would not have answered for long end with ClosedError."""
        harness.faults(client).delay("storage.read", 60)
        future = client.storage().fetch("k")
        client.close()
        with pytest.raises(ClosedError):
            future.result(harness.operation_seconds * time_scale())

    def test_G08_close_ends_waiting_calls(self, open_client: OpenClient) -> None:
        """A call that waits to be elected ends when its locator is closed."""
        leader, waiter = open_client(), open_client()
        assert leader.leader_election("s").nominate("first", "")
        election = waiter.leader_election("s")
        election.nominate("second", "")
        ended: list[object] = []
        thread = threading.Thread(target=lambda: ended.append(election.wait_elected("second", 60)))
        thread.start()
        throughout(thread.is_alive, seconds=0.2)  # it has begun to wait by then
        waiter.close()
        thread.join(5 * time_scale())
        assert ended == [None]

    def test_G09_close_from_callback(self, open_client: OpenClient) -> None:
        """A listener may close the locator it belongs to."""
        client, other = open_client(), open_client()
        closing: Recorder[ValueChange[str]] = Recorder(then=lambda _: client.close())
        client.listener_registry().add_value_change_listener("k", closing)
        other.storage().put("k", "v")  # its own call might end without an answer
        closing.expect_count(1)
        client.close()
        with pytest.raises(ClosedError):
            client.storage()

    def test_G10_no_leak(self, harness: Harness, root: str) -> None:
        """Fifty clients, opened, used and closed, leave no thread, descriptor or process."""
        _use(harness.open(root))
        before = resources_held()
        for _ in range(50):
            _use(harness.open(root))
        expect_no_more_than(before)

    def test_G11_fork_safety(self, client: PluginLocator) -> None:
        """In a forked child a handle raises LifecycleError; the parent is not affected."""
        storage, group = client.storage(), client.group_membership("g")
        member = group.join("m", "")
        storage.put("k", "v")
        assert in_forked_child(lambda: storage.get("k")) == "LifecycleError"
        assert in_forked_child(client.close) == "None"
        assert storage.fetch("k").result() == "v"
        assert member.is_valid()
        assert group.membership_list() == {"m"}

    def test_G11_future_of_the_parent(self, harness: Harness, client: PluginLocator) -> None:
        """In a forked child, waiting for an answer that the parent gets raises LifecycleError."""
        storage, faults = client.storage(), harness.faults(client)
        faults.delay("storage.read", 60)
        one = storage.fetch("k")
        faults.delay("storage.read", 60)
        many = storage.fetch_many(["k"])
        assert in_forked_child(one.result) == "LifecycleError"
        assert in_forked_child(many.exception) == "LifecycleError"
        client.close()

    @pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
    def test_G42_multiprocessing_ends(
        self, harness: Harness, root: str, client: PluginLocator, method: str
    ) -> None:
        """Everything that a process of multiprocessing holds is free once it has ended as usual."""
        group, properties = client.group_membership("g"), harness.properties(root)
        written = json.dumps({name: str(value) for name, value in properties.items()})
        program = [sys.executable, "-m", multiprocess_end.__name__, method, "g", written]
        run = subprocess.run(program, capture_output=True, text=True, check=False)
        assert not group.membership_list()
        assert (run.returncode, run.stdout) == (0, "worked to the end\n"), run.stderr

    def test_G12_block_ends_membership(
        self, harness: Harness, root: str, client: PluginLocator
    ) -> None:
        """The end of the with-block ends the memberships, well before the session timeout."""
        group = client.group_membership("g")
        with harness.open(root) as other:
            other.group_membership("g").join("m", "")
            assert group.membership_list() == {"m"}
        eventually(
            lambda: not group.membership_list(),
            within=harness.session_seconds / 2,
            what="the group is empty",
        )

    @pytest.mark.filterwarnings("ignore:a locator of the store:ResourceWarning")
    def test_G12_dropped_client_ends_membership(
        self, harness: Harness, root: str, client: PluginLocator
    ) -> None:
        """Dropping the last reference ends the memberships by the session timeout."""
        other: PluginLocator | None = harness.open(root)
        assert other is not None
        other.group_membership("g").join("m", "")
        other = None
        gc.collect()
        group = client.group_membership("g")
        eventually(
            lambda: not group.membership_list(),
            within=harness.session_seconds + 1,
            what="the group is empty",
        )


def _use(client: PluginLocator) -> None:
    with client:
        client.listener_registry().add_value_change_listener("k", print)
        client.group_membership("g").join("m", "")
        client.leader_election("s").nominate("c", "")
        client.storage().fetch("k").result()
