"""Members: leased records in the table of their group."""

from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import MembershipDriver
from kip30.driver.kit import refusals
from kip30.driver.records import Claim, Kind, Target
from toystore.memory import Memory
from toystore.session import Sessions


class ToyMembership(MembershipDriver):
    def __init__(self, memory: Memory, sessions: Sessions) -> None:
        self._memory = memory
        self._sessions = sessions

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        target = Target(Kind.GROUP, group, member_id)
        return self._sessions.answer(lambda: self._claim(target, nonce, data))

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        target = Target(Kind.GROUP, group, claim.name)
        return self._sessions.answer(lambda: self._replace(target, claim, nonce, data))

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        return self._sessions.release(Target(Kind.GROUP, group, claim.name), claim)

    def _claim(self, target: Target, nonce: str, data: bytes) -> Claim:
        lease = self._sessions.lease()
        held = self._memory.table(target).get(target.name)
        record = held or self._memory.put(target, nonce, data, lease)
        if record.entry.nonce != nonce:
            raise refusals.member_exists(target.scope, target.name)
        return Claim(target.name, record.entry, lease, self._memory.revision)

    def _replace(self, target: Target, claim: Claim, nonce: str, data: bytes) -> Claim:
        held = self._memory.table(target).get(target.name)
        if held is None or held.entry.version != claim.entry.version:
            raise refusals.not_member(target.scope, target.name)
        if held.entry.nonce != claim.entry.nonce:
            raise refusals.other_record(target.name)
        entry = claim.entry._replace(nonce=nonce, data=data)  # the version tells incarnations
        record = self._memory.replace(target, entry, claim.lease)
        return Claim(target.name, record.entry, claim.lease, self._memory.revision)
