"""A process of the models: a member and, at times, a leader, both driven by the shipped decisions.

Each is a generator that yields wherever a real one waits, so a schedule decides what happens in
between. The model decides the effect of a request and how it fails: see `Process.request`.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import (
    LeaderFacts,
    LeaderRules,
    MemberFacts,
    MemberProfile,
    StateReading,
    leader_next,
    member_next,
)
from kip30.coordinator.decisions import steps as step_types
from kip30.coordinator.interface import AssignmentMetadata
from kip30.coordinator.packing import PackingLimits
from kip30.coordinator.records import MemberRecord, PresentMember

from .application import Application
from .model_store import KEYS, ModelStore, RefusedError

T = TypeVar("T")
Run = Generator[None, None, T]


class LostAnswerError(Exception):
    """A request has no answer; it may be applied now, later, or never."""


class Timings(NamedTuple):
    """Durations in a model, in its own ticks."""

    session: float
    margin: float
    config: GroupConfig

    @property
    def rebalance(self) -> float:
        return self.config.rebalance_timeout_seconds


class Process(ABC):
    """One process; the model subclasses it."""

    timings: ClassVar[Timings]

    def __init__(
        self,
        store: ModelStore,
        profile: MemberProfile,
        application: Application,
        nonces: "itertools.count[int]",
        limits: PackingLimits,
    ) -> None:
        self.store = store
        self.member_id = profile.member_id
        self.application = application
        self.limits = limits
        self._nonces = nonces
        self.pause = 0
        self.is_over = False
        self.facts = MemberFacts(now=0.0, nonce="", profile=profile)

    @property
    def instance(self) -> str:
        return self.facts.profile.instance

    @property
    def is_static(self) -> bool:
        return self.facts.profile.is_static

    # -- what the model decides

    @abstractmethod
    def now(self) -> float:
        """Return the time on the clock of this process."""

    @abstractmethod
    def request(
        self, effect: Callable[[], T], *, late: Callable[[], object] | None = None
    ) -> Run[T]:
        """Apply *effect* and return its answer.

        A model that loses answers raises `LostAnswerError`; *late* is the effect of a request
        that is applied after its answer was given up.
        """

    @abstractmethod
    def rest(self) -> Run[None]:
        """Wait for a change, and refresh `facts`."""

    @abstractmethod
    def session_ended(self) -> bool:
        """Return whether this process has noticed that its membership is over."""

    @abstractmethod
    def lease_deadline(self, sent_at: float) -> float:
        """Return the deadline of a membership that was requested at *sent_at*."""

    def seen_group(self) -> Iterable[PresentMember]:
        """Return the group as this process sees it."""
        return self.store.members.values()

    @abstractmethod
    def leads(self) -> bool:
        """Return whether this process still believes that it leads."""

    def took_up(self) -> None:  # noqa: B027  only one model has something to check
        """Check the share that was just taken up."""

    def enter(self, record: MemberRecord) -> None:
        """Add the member to the group, in the store."""
        self.store.join(self.member_id, record)

    def give_up(self) -> Run[None]:
        """Take the time that the application needs to give work up."""
        yield

    # -- the member

    def poll(self) -> Run[None]:
        while not self.is_over:
            if self.facts.record is not None and self.session_ended():
                self.facts = self.facts.session_over()
            self.facts = self.facts.at(self.now(), self.nonce())
            step = member_next(self.facts)
            yield from self._member_steps[type(step)](self, step)

    def nonce(self) -> str:
        return f"{next(self._nonces) * 0x9E3779B97F4A7C15 % 2**64:016x}"

    def read_state(self, _step: object = None) -> Run[None]:
        sent_at = self.now()
        reading = yield from self.request(lambda: self._reading(sent_at))
        self.facts = self.facts.at(self.now()).read(reading)

    def _reading(self, sent_at: float) -> StateReading:
        store = self.store
        version = store.versions.get(KEYS.state)
        return StateReading(store.state, version, sent_at, store.holders.get(self.instance))

    def _read_group(self, _step: object) -> Run[None]:
        members = yield from self.request(lambda: tuple(self.store.members.values()))
        self.facts = self.facts.at(self.now()).read_group(members)

    def _claim(self, _step: object) -> Run[None]:
        key, store = KEYS.instance(self.instance), self.store
        found = yield from self.request(
            lambda: (store.holders.get(self.instance), store.versions.get(key))
        )
        version = found[1]
        if found[0] != self.member_id or version is None:
            take = partial(store.claim_instance, self.instance, self.member_id, version)
            try:
                version = yield from self.request(take, late=take)
            except (RefusedError, LostAnswerError):
                return
        self.facts = self.facts.at(self.now()).claimed(version)

    def _prepare(self, _step: object) -> Run[None]:
        yield from self.give_up()
        self.application.on_join_prepare()
        self.facts = self.facts.prepared()

    def _collect(self, _step: object) -> Run[None]:
        self.facts = self.facts.collected(
            self.application.metadata(), self.application.subscription
        )
        yield

    def _join(self, step: step_types.JoinGroup) -> Run[None]:
        sent_at = self.now()
        try:
            yield from self.request(lambda: self.enter(step.record), late=lambda: None)
        except LostAnswerError:
            return
        self.facts = self.facts.at(self.now()).joined(
            step.record, lease_deadline=self.lease_deadline(sent_at)
        )

    def _update(self, step: step_types.UpdateRecord) -> Run[None]:
        update = partial(self.store.update, self.member_id, step.record)
        late = partial(update, self.store.members.get(self.member_id))
        self.facts = self.facts.written(step.record, acknowledged=False)
        try:
            yield from self.request(update, late=late)
        except LostAnswerError:
            return
        except RefusedError:
            self.facts = self.facts.session_over()
            return
        self.facts = self.facts.at(self.now()).written(step.record)

    def _fetch(self, step: step_types.FetchPart) -> Run[None]:
        part = yield from self.request(lambda: self.store.part(step.attempt, step.number))
        self.facts = self.facts.fetched(step.attempt, part)

    def _take_up(self, step: step_types.TakeUp) -> Run[None]:
        yield from self.give_up()
        self.application.on_join_complete(step.generation, step.assignment.share)
        self.facts = self.facts.taken_up(step.assignment)
        self.took_up()

    def _lose(self, _step: object) -> Run[None]:
        self.application.on_lost()
        self.facts = self.facts.lost()
        yield

    def _end(self, _step: object) -> Run[None]:
        yield
        self.store.members.pop(self.member_id, None)
        self.is_over = True

    def _wait(self, _step: object) -> Run[None]:
        yield from self.rest()

    _member_steps: ClassVar[dict[type, Callable[[Any, Any], Run[None]]]] = {
        step_types.ReadState: read_state,
        step_types.ReadGroup: _read_group,
        step_types.ClaimInstance: _claim,
        step_types.PrepareJoin: _prepare,
        step_types.CollectMetadata: _collect,
        step_types.JoinGroup: _join,
        step_types.UpdateRecord: _update,
        step_types.FetchPart: _fetch,
        step_types.TakeUp: _take_up,
        step_types.ReportLoss: _lose,
        step_types.EndMember: _end,
        step_types.WaitForChange: _wait,
    }

    # -- the leader

    def lead(self, epoch: int) -> Run[None]:
        timings = self.timings
        rules = LeaderRules(
            member_id=self.member_id,
            epoch=epoch,
            config=timings.config,
            session_timeout_seconds=timings.session,
            limits=self.limits,
        )
        facts = LeaderFacts(now=self.now(), nonce=self.nonce(), rules=rules)
        facts = facts.saw_group(self.seen_group())
        while self.leads() and not self.is_over:
            facts = facts.at(self.now(), self.nonce())
            step = leader_next(facts)
            if isinstance(step, step_types.Resign):
                return
            facts = yield from self._leader_steps[type(step)](self, step, facts)

    def _leader_reads(self, _step: object, facts: LeaderFacts) -> Run[LeaderFacts]:
        reading = yield from self.request(lambda: self._reading(self.now()))
        return facts.at(self.now()).read(reading)

    def _leader_reads_group(self, _step: object, facts: LeaderFacts) -> Run[LeaderFacts]:
        members = yield from self.request(lambda: tuple(self.seen_group()))
        return facts.at(self.now()).saw_group(members, linearizable=True)

    def _write_state(self, step: step_types.WriteState, facts: LeaderFacts) -> Run[LeaderFacts]:
        write = partial(self.store.write_state, step.record, step.expected)
        try:
            version = yield from self.request(write, late=write)
        except (RefusedError, LostAnswerError):
            return facts.unread()
        return facts.at(self.now()).written(step.record, version)

    def _read_parts(self, step: step_types.ReadParts, facts: LeaderFacts) -> Run[LeaderFacts]:
        store = self.store
        parts = yield from self.request(
            lambda: {number: store.part(step.attempt, number) for number in step.numbers}
        )
        return facts.at(self.now()).read_parts(parts)

    def _read_instances(
        self, step: step_types.ReadInstances, facts: LeaderFacts
    ) -> Run[LeaderFacts]:
        holders = self.store.holders
        found = yield from self.request(
            lambda: {name: holders.get(name, "") for name in step.instances}
        )
        return facts.at(self.now()).read_instances(found)

    def _assign(self, step: step_types.Assign, facts: LeaderFacts) -> Run[LeaderFacts]:
        facts = facts.assigning(step.vote)
        members = [
            AssignmentMetadata(
                one.member_id,
                one.record.instance if one.record.is_static else None,
                one.record.protocols[0].metadata,
                one.member_id not in step.vote.absent,
            )
            for one in step.vote.accepted
        ]
        shares = self.application.perform_assignment(members)
        withheld = self.application.withheld
        yield
        return facts.assigned(shares, follow_up=withheld > 0)

    def _put_parts(self, step: step_types.PutParts, facts: LeaderFacts) -> Run[LeaderFacts]:
        for number, data in step.parts.items():
            put = partial(self.store.put_parts, step.attempt, {number: data})
            try:
                yield from self.request(put, late=put)
            except (RefusedError, LostAnswerError):
                return facts.abandoned()
        return facts.stored()

    def _clean(self, step: step_types.CleanParts, facts: LeaderFacts) -> Run[LeaderFacts]:
        yield from self.request(lambda: self.store.clean(step.generation))
        return facts.cleaned_up(step.generation)

    def _leader_waits(
        self, _step: step_types.WaitForChange, facts: LeaderFacts
    ) -> Run[LeaderFacts]:
        yield
        facts = facts.at(self.now()).saw_group(self.seen_group())
        reading = facts.reading
        if reading is not None and reading.version != self.store.versions.get(KEYS.state):
            return facts.unread()  # as the listener says
        return facts

    _leader_steps: ClassVar[dict[type, Callable[[Any, Any, LeaderFacts], Run[LeaderFacts]]]] = {
        step_types.ReadState: _leader_reads,
        step_types.ReadGroup: _leader_reads_group,
        step_types.WriteState: _write_state,
        step_types.ReadParts: _read_parts,
        step_types.ReadInstances: _read_instances,
        step_types.Assign: _assign,
        step_types.PutParts: _put_parts,
        step_types.CleanParts: _clean,
        step_types.WaitForChange: _leader_waits,
    }


def profile(
    member_id: str,
    timings: Timings,
    *,
    instance: str | None,
    cooperative: bool,
    waits: bool = False,
) -> MemberProfile:
    """Return the profile of a member of a model; *waits* for its predecessor or not."""
    return MemberProfile(
        member_id=member_id,
        instance=instance or member_id,
        protocol_type="model",
        rebalance_timeout_seconds=timings.rebalance,
        margin_seconds=timings.margin,
        cooperative=cooperative,
        wait_for_predecessor=waits,
    )
