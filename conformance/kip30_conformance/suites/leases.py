"""The deadline of a holder's lease: earlier than the store's, counted from the sending.

The rule is that of Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for
distributed file cache consistency" (1989): for its holder, a lease lasts from before it was
requested, less the possible difference of clocks.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kip30 import Leadership, MemberExistsError, OutcomeUnknownError, UnavailableError
from kip30.driver import Backend
from kip30.driver.clock import SystemClock
from kip30.driver.records import new_nonce
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer, Suite, supported

_MARGIN = 0.45
"""As a share of the session timeout: so much that no pause of this machine hides that it is left
out, and less than half, which is the most there may be."""
_SMALL_MARGIN = 0.1
_HELD_BACK = (0.15, 0.3, 0.45) * 2
"""As shares of the session timeout. Some are so short that a client does not give its connection up
and send its request again, and some are longer than from one renewal to the next."""
_SESSION = "plugin.session.timeout.ms"
_ODD_MILLISECONDS = 937
_DATED = ("nothing", "claim", "renewal")
"""The part of each holder's claim that is dated by times that are read slowly."""
_OTHER_CLOCK = "a lease is dated from a time that was not read from `context.clock`"
_DATED_LATE = (
    "each lease was dated after answers went on: `sent_at` must be read before the request is sent"
)


class LeaseTests(Suite):
    """Deadlines of leases, as their holders read them."""

    def test_L39_margin(self, open_client: OpenClient, harness: Harness) -> None:
        """A deadline is no later than the session timeout from now, less the margin."""
        clock, milliseconds = SystemClock(), harness.steady[_SESSION]
        margin = round(_MARGIN * milliseconds)
        client = open_client(clock=clock, **harness.steady, **{"plugin.lease.margin.ms": margin})
        longest = (milliseconds - margin) / 1000
        with client.leader_election("s").lead("c", "") as term:
            member = client.group_membership("g").join("m", "")
            granted = term.deadline
            assert granted <= clock.now() + longest
            assert member.deadline <= clock.now() + longest
            eventually(
                lambda: term.deadline > granted, within=milliseconds / 1000, what="a renewal"
            )
            assert term.deadline <= clock.now() + longest
            assert member.deadline <= clock.now() + longest

    @pytest.mark.fault
    def test_L40_late_answer_to_a_claim(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A new lease counts from before it was requested, however late the answer comes.

        One requested again after answers are let through proves nothing, so several are tried.
        """
        dated_before = list[bool]()
        for share in _HELD_BACK:
            client = open_client(**_with_small_margin(harness))
            election = client.leader_election("s")
            with ThreadPoolExecutor(1) as pool, supported(harness.late_answers, client):
                pool.submit(election.nominate, "c", "")
                answered_from = _after(share * _seconds(harness))
            term = eventually(
                partial(election.leadership, "c"),
                within=_seconds(harness),
                what="the candidate leads",
            )
            dated_before.append(_sent_at(term.deadline, harness) < answered_from)
            election.resign("c")
            if any(dated_before):
                break
        evidence.saw("claims while answers were held back", len(dated_before))
        assert any(dated_before), _DATED_LATE

    @pytest.mark.fault
    def test_L40_late_answer_to_a_renewal(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence
    ) -> None:
        """A renewal counts from when it was sent, however late its answer comes.

        One sent again after answers are let through proves nothing, so several are tried.
        """
        client = open_client(**_with_small_margin(harness))
        election = client.leader_election("s")
        election.nominate("c", "")
        dated_before = list[bool]()
        for share in _HELD_BACK:
            term = eventually(lambda: election.leadership("c"), what="the candidate leads")
            with supported(harness.late_answers, client):
                answered_from, before = _after(share * _seconds(harness)), term.deadline
            deadline = eventually(
                partial(_renewed, term, before),
                within=_seconds(harness),
                what="the lease is renewed, or ends",
            )
            if term.is_valid():
                dated_before.append(_sent_at(deadline, harness) < answered_from)
            if any(dated_before):
                break
        evidence.saw("renewals after answers were held back", len(dated_before))
        assert any(dated_before), _DATED_LATE

    @pytest.mark.fault
    def test_L45_no_lease_outlasts_the_stores(
        self, open_client: OpenClient, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """No other client gets a claim before the deadline that its holder has read.

        One holder is stopped with a new lease, one with a lease whose time was read slowly, and one
        after a renewal whose time was read slowly: read after the answer, it would be far too
        late. The timeouts are no round numbers.
        """
        holders = {what: peer(**_odd(harness.timeouts)) for what in _DATED}
        for what in _DATED[1:]:
            holders[what].send("learn_dating", what=what)
        found = [holders[what].receive() for what in _DATED[1:]]
        assert all(found), _OTHER_CLOCK
        for what, holder in holders.items():
            holder.send("keep_claim", what=what, group=what)
        deadlines, slow = dict[str, float](), 0
        for what, holder in holders.items():
            deadlines[what], reads = holder.receive()
            holder.stop()
            slow += reads
        evidence.saw("times that were read slowly by processes stopped after it", slow)
        backend, clock = open_client(**harness.steady).backend, SystemClock()
        while waiting := [what for what in _DATED if clock.now() < deadlines[what]]:
            for what in waiting:
                if _is_taken_over(backend, what):
                    left = deadlines[what] - clock.now()
                    assert left <= 0, (
                        f"{what}: taken over {left:.3f} s before its holder's deadline"
                    )

    def test_L46_what_was_asked_for(self, open_client: OpenClient, harness: Harness) -> None:
        """A session timeout that was asked for is granted to the millisecond, or refused."""
        odd = _odd(harness.patient)
        client = open_client(**odd)
        lease = client.backend.membership.claim("g", "m", new_nonce(), b"").result().lease
        assert lease.timeout_seconds >= odd[_SESSION] / 1000
        assert client.storage().put("n/k", "v")


def _odd(timeouts: Mapping[str, Any]) -> dict[str, Any]:
    """Return *timeouts* that are no whole numbers of seconds: rounded down, much too short."""
    return {
        key: milliseconds // 1000 * 1000 + _ODD_MILLISECONDS
        for key, milliseconds in timeouts.items()
    }


def _is_taken_over(backend: Backend, group: str) -> bool:
    """Return whether ``m`` of *group* can be claimed; not if the store takes too long to say."""
    try:
        backend.membership.claim(group, "m", new_nonce(), b"").result()
    except (MemberExistsError, UnavailableError, OutcomeUnknownError):
        return False
    return True


def _seconds(harness: Harness) -> float:
    seconds: float = harness.steady[_SESSION] / 1000
    return seconds


def _with_small_margin(harness: Harness) -> dict[str, Any]:
    margin = round(1000 * _SMALL_MARGIN * _seconds(harness))
    return {**harness.steady, "plugin.lease.margin.ms": margin}


def _sent_at(deadline: float, harness: Harness) -> float:
    """Return the moment from which a lease with that *deadline* is dated."""
    return deadline - (1 - _SMALL_MARGIN) * _seconds(harness)


def _after(seconds: float) -> float:
    """Wait that long, and return the time by the clock of leases."""
    clock = SystemClock()
    until = clock.now() + seconds
    eventually(lambda: clock.now() >= until, within=seconds + 1, what="time has passed")
    return clock.now()


def _renewed(term: Leadership, before: float) -> float:
    """Return another deadline than *before*, or that of a term that has ended; else 0."""
    deadline = term.deadline
    return deadline if deadline > before or not term.is_valid() else 0.0
