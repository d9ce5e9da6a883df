"""A Kafka-style controller: one broker of a cluster assigns a leader to every partition.

A minimal version of KafkaServer and KafkaController as the patch of KAFKA-2921 changed them, on the
four interfaces of KIP-30. Start some brokers, then create a topic; its value names the replicas of
each partition. Kill any broker, the controller too, and see the leaders move:

    python docs/examples/controller.py --broker 1 --config kip30.properties
    python docs/examples/controller.py --broker 2 --config kip30.properties
    kip30 --config kip30.properties kv put topics/orders '{"0": [1, 2], "1": [2, 1]}'
    kip30 --config kip30.properties kv get state/orders

What is kept where:

    group    brokers        the brokers that are alive
    service  controller     its leader is the controller, its epoch the controller epoch
    key      topics/NAME    {"PARTITION": [replica, ...]}, written by an administrator
    key      state/NAME     {"controller_epoch": E, "leaders": {"PARTITION": broker or null}},
                            written by the controller
"""

import argparse
import socket
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from kip30 import (
    JSON,
    ClosedError,
    FencedError,
    KeySetChange,
    LeaderElection,
    Leadership,
    MembershipChange,
    OutcomeUnknownError,
    PluginLocator,
    UnavailableError,
    ValueChange,
    close_on_signals,
)
from kip30.kafka_elector import LeaderElectorAdapter

RETRY_SECONDS = 0.5


class IllegalStateError(Exception):
    """A later controller has written a state: this one was superseded, and must not write."""


class Controller:
    """A broker's role as the controller: it assigns leaders only while the broker is elected.

    Callbacks of kip30 only note what has happened and wake the main loop, which calls `assign`.
    So the leaders are assigned by one thread, and no callback keeps another one waiting.
    """

    def __init__(
        self,
        broker: int,
        election: LeaderElection[str],
        locator: PluginLocator,
        wake: Callable[[], None],
    ) -> None:
        """Take part in no election before the *elector* is started."""
        self.elector = LeaderElectorAdapter(self._failover, self._resignation, broker, election)
        self._brokers = locator.group_membership("brokers")
        self._keys = locator.listener_registry(JSON)
        self._storage = locator.storage(JSON)
        self._wake = wake
        # The term this broker is the controller for; set and forgotten by the elector's callbacks.
        self._term: Leadership | None = None

    def assign(self) -> None:
        """Give each partition of each topic a leader, if this broker is the controller.

        Raises:
            UnavailableError, OutcomeUnknownError: The store does not answer; call it again.
        """
        term = self._term  # once: the next one must not write what was read for this one
        if term is None:
            return
        try:
            alive = {int(broker) for broker in self._brokers.membership_list()}
            for topic in list(self._storage.list("topics")):
                self._assign(topic.removeprefix("topics/"), alive, term)
        except (IllegalStateError, FencedError) as error:
            self._start_over(error)

    def _failover(self) -> None:
        """Become the controller: the elector calls this when it has been elected."""
        term = self.elector.leadership
        say(f"controller, epoch {term.epoch}")  # before `assign` can write anything in this term
        self._term = term
        try:
            self._brokers.add_listener(self._brokers_changed)
            self._keys.add_key_set_change_listener("topics", self._topics_changed)
        except UnavailableError as error:
            self._start_over(error)
        self._wake()

    def _resignation(self) -> None:
        """Stop being the controller: called once for each failover, whether lost or given up."""
        say("not controller")
        self._term = None  # all that the controller knew; the next failover reads it again
        self._brokers.remove_listener(self._brokers_changed)
        self._keys.remove_key_set_change_listener("topics", self._topics_changed)

    def _brokers_changed(self, _change: MembershipChange[str]) -> None:
        self._wake()

    def _topics_changed(self, _change: KeySetChange) -> None:
        self._wake()

    def _assign(self, name: str, alive: Collection[int], term: Leadership) -> None:
        topic, written = self._storage.get(f"topics/{name}"), self._storage.get(f"state/{name}")
        if topic is None:
            return
        before: Any = written.value if written else {"controller_epoch": 0, "leaders": {}}
        if before["controller_epoch"] > term.epoch:
            raise IllegalStateError(f"{name} has controller epoch {before['controller_epoch']}")
        leaders = {
            partition: chosen(before["leaders"].get(partition), replicas, alive)
            for partition, replicas in topic.value.items()
        }
        state = {"controller_epoch": term.epoch, "leaders": leaders}
        if state != before:
            # This process may have been paused since it was elected, for longer than its session
            # lasts. The fence lets the store refuse what is written too late.
            self._storage.set(f"state/{name}", state, fence=term)

    def _start_over(self, error: Exception) -> None:
        """Leave an illegal state as Kafka does: resign, then take part again, in a later term."""
        say(f"start over: {error}")
        try:
            self.elector.resign()
        finally:
            self.elector.elect()


def chosen(present: int | None, replicas: Sequence[int], alive: Collection[int]) -> int | None:
    """Return the leader of a partition: the present one if it lives, else the first that does."""
    live = [replica for replica in replicas if replica in alive]
    return present if present in live else next(iter(live), None)


class StateFollower:
    """The leader of each partition, as the newest controller decided it; each broker has one."""

    def __init__(self, locator: PluginLocator, wake: Callable[[], None]) -> None:
        """Call *wake* when there is something to `follow`."""
        self.leaders: dict[str, Mapping[str, int | None]] = {}
        self._epochs: dict[str, int] = {}
        self._keys: frozenset[str] = frozenset()
        self._registry = locator.listener_registry(JSON)
        self._wake = wake
        self._registry.add_key_set_change_listener("state", self._listed, initial=True)

    def follow(self) -> None:
        """Listen to each state that exists; adding a listener a second time changes nothing."""
        for key in self._keys:
            self._registry.add_value_change_listener(key, self._changed, initial=True)

    def _listed(self, change: KeySetChange) -> None:
        self._keys = change.keys
        self._wake()

    def _changed(self, change: ValueChange[Any]) -> None:
        if change.value is None:
            return
        epoch, leaders = change.value["controller_epoch"], change.value["leaders"]
        if epoch < self._epochs.get(change.key, 0):
            say(f"{change.key} refused: controller epoch {epoch} is over")
            return
        self._epochs[change.key], self.leaders[change.key] = epoch, leaders
        say(f"{change.key} is {leaders}, controller epoch {epoch}")


def serve(broker: int, locator: PluginLocator) -> None:
    """Run a broker until the locator is closed."""
    changed = threading.Event()
    follower = StateFollower(locator, changed.set)
    # From now on the controller may choose this broker. After a lost session it joins again by
    # itself and stays a candidate: there is no counterpart of Kafka's SessionExpirationListener.
    locator.group_membership("brokers").join(str(broker), socket.gethostname())
    controller = Controller(broker, locator.leader_election("controller"), locator, changed.set)
    with controller.elector:
        pause = None
        while True:
            changed.wait(pause)
            changed.clear()
            pause = None
            try:
                follower.follow()
                controller.assign()
            except (UnavailableError, OutcomeUnknownError) as error:
                say(f"again in {RETRY_SECONDS} s: {error}")
                pause = RETRY_SECONDS
            except ClosedError:
                return


def say(line: str) -> None:
    """Print a line at once, also to a file or a pipe, and in one piece: several threads print."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run a broker with the arguments of the command line."""
    parser = argparse.ArgumentParser(description="a broker, which may become the controller")
    parser.add_argument("--broker", type=int, required=True, metavar="NUMBER")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file of kip30")
    given = parser.parse_args()
    # The store is opened first and closed last. SIGTERM closes it before it ends the process, so
    # that another broker can take over at once.
    with PluginLocator().startup(given.config) as locator, close_on_signals(locator):
        serve(given.broker, locator)


if __name__ == "__main__":
    main()
