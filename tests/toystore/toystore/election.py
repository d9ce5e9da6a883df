"""Leaders: the only record in the table of their service, leased. Its version is the epoch."""

from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.records import Claim, HeldByOther, Kind, Target
from toystore.memory import Memory
from toystore.session import Sessions


class ToyElection(ElectionDriver):
    def __init__(self, memory: Memory, sessions: Sessions) -> None:
        self._memory = memory
        self._sessions = sessions

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        target = Target(Kind.SERVICE, service, candidate)
        return self._sessions.answer(lambda: self._claim(target, nonce, data))

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._sessions.release(Target(Kind.SERVICE, service, claim.name), claim)

    def _claim(self, target: Target, nonce: str, data: bytes) -> Claim | HeldByOther:
        lease = self._sessions.lease()
        held = next(iter(self._memory.table(target).values()), None)
        record = held or self._memory.put(target, nonce, data, lease)
        if record.entry.nonce != nonce:
            return HeldByOther(by=self._memory.look(target))
        return Claim(target.name, record.entry, lease, self._memory.revision)
