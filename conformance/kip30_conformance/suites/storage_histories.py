"""Calls of many clients to a few keys, judged as a whole: S12, S32 and S48."""

import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kip30 import DefiniteError, Fence, Leadership, OutcomeUnknownError, PluginLocator
from kip30.driver import Capability
from kip30.history.linearizability import check
from kip30.history.operations import Operation
from kip30.history.recorder import HistoryRecorder, read_rows
from kip30.history.storage_register import StorageRegister
from kip30.history.terms import Term
from kip30.history.vacuity import missing_evidence
from kip30.history.verdict import Verdict
from kip30_conformance.clients.crowd import together
from kip30_conformance.clients.peer import Peer
from kip30_conformance.clients.random_calls import Worker
from kip30_conformance.evidence import Evidence, NoEvidenceError
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, OpenPeer, Suite

KEYS = ["n/a", "n/b", "n/c"]
TIMES = 120
_PAUSE_SECONDS = 0.001
TERMS = 4
FENCED_WRITES = 25


class StorageHistoryTests(Suite):
    """Every outcome of every call is that of some order of all calls, key by key."""

    def test_S12_put_update_delete_race(
        self, open_client: OpenClient, peer: OpenPeer, tmp_path: Path
    ) -> None:
        """Threads and processes race; one order explains all their outcomes."""
        peers = [peer() for _ in range(2)]
        for number, one in enumerate(peers):
            _send_work(one, f"process {number}", TIMES, tmp_path)
        rows = _work_here([open_client(), open_client()])
        for one in peers:
            one.receive()
        _expect_linearizable([*rows, *read_rows(tmp_path)])

    @pytest.mark.fault
    def test_S32_linearizable_register(
        self,
        harness: Harness,
        open_client: OpenClient,
        peer: OpenPeer,
        tmp_path: Path,
        evidence: Evidence,
    ) -> None:
        """One order explains all outcomes, though answers are lost and a process is killed."""
        clients = [open_client(), open_client()]
        faults, killed = harness.faults(clients[0]), peer()
        _send_work(killed, "killed", 100 * TIMES, tmp_path)
        eventually(lambda: _has_answers(tmp_path), what="the process to be killed makes calls")
        faults.lose_answers("storage.write", times=TIMES // 4)
        rows = _work_here(clients)
        killed.kill()
        rows_of_killed = read_rows(tmp_path)
        evidence.saw("lost answers", faults.counted())
        evidence.saw("calls until kill -9", len(rows_of_killed))
        evidence.saw("calls prevented by kill -9", 100 * TIMES - len(rows_of_killed))
        _expect_linearizable([*rows, *rows_of_killed], faults=faults.counted())

    def test_S48_no_refusal_without_cause(self, open_client: OpenClient) -> None:
        """No write of a valid leadership is refused, and none of an outdated one is done."""
        clients = [open_client() for _ in range(3)]
        if Capability.FENCING not in clients[0].backend.capabilities:
            pytest.skip("this store has no fences")
        recorder, terms, is_over = HistoryRecorder(), list[Term](), threading.Event()
        leading = [partial(_lead, one, recorder, terms) for one in clients[:2]]
        worker = Worker(clients[2].storage(), recorder, "without a fence", KEYS[:1], _seed())

        def lead() -> None:
            try:
                together(leading)
            finally:
                is_over.set()

        def interfere() -> None:
            # To the end, so that the calls overlap; with pauses, so that their number stays small.
            while not is_over.wait(_PAUSE_SECONDS):
                worker.work(1)

        together([lead, interfere])
        assert len(terms) > TERMS, "too few leaderships were held to the end"
        _expect_linearizable(recorder.rows(), terms=terms)


def _lead(client: PluginLocator, recorder: HistoryRecorder, terms: list[Term]) -> None:
    """Lead a few times, and write with the fence of each term, also after it has ended.

    A write right after the end may come before the next term. One under the next term of the same
    client cannot.
    """
    election, former = client.leader_election("s"), None
    for _ in range(TERMS):
        with election.lead(_name(client), "") as leadership:
            begun_ns = time.monotonic_ns()
            if former is not None:
                _write_fenced(client, recorder, former, ["under the next one"])
            _write_fenced(client, recorder, leadership, range(FENCED_WRITES))
            held_ns = time.monotonic_ns()
            if leadership.is_valid():
                terms.append(Term("s", leadership.epoch, begun_ns, held_ns))
        _write_fenced(client, recorder, leadership, ["after the end"])
        former = leadership


def _write_fenced(
    client: PluginLocator,
    recorder: HistoryRecorder,
    leadership: Leadership,
    writes: Iterable[object],
) -> None:
    fence, storage, key = Fence("s", leadership.epoch), client.storage(), KEYS[0]
    for write in writes:
        value = f"{_name(client)} {fence.epoch} {write}"
        with (
            suppress(DefiniteError, OutcomeUnknownError),
            recorder.call(_name(client), "set", key, value, fence=fence) as call,
        ):
            call.ok(version=storage.set(key, value, fence=fence))


def _name(client: PluginLocator) -> str:
    return f"client {id(client)}"


def _work_here(clients: Sequence[PluginLocator]) -> list[Operation]:
    """Let two threads of each client work at once, and return their calls."""
    recorder = HistoryRecorder()
    workers = [
        Worker(client.storage(), recorder, f"client {number} thread {thread}", KEYS, _seed())
        for number, client in enumerate(clients)
        for thread in range(2)
    ]
    together([partial(worker.work, TIMES) for worker in workers])
    return recorder.rows()


def _has_answers(directory: Path) -> bool:
    return any(row.answered for row in read_rows(directory))


def _send_work(peer: Peer, process: str, times: int, directory: Path) -> None:
    peer.send(
        "work",
        directory=str(directory),
        process=process,
        keys=KEYS,
        seed=_seed(),
        times=times,
    )


def _expect_linearizable(
    rows: Sequence[Operation], *, faults: int | None = None, terms: Sequence[Term] = ()
) -> None:
    model = StorageRegister(terms=terms)
    reasons = missing_evidence(rows, model, faults=faults)
    if reasons:
        raise NoEvidenceError("; ".join(reasons))
    report = check(rows, model)
    assert report.verdict is Verdict.OK, str(report)


def _seed() -> int:
    return random.getrandbits(32)
