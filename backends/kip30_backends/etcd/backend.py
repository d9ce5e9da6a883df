"""etcd as a backend."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.kit.watch import Observe
from kip30.driver.scanning import View
from kip30_backends.etcd.claims import Claims
from kip30_backends.etcd.client.messages import StatusAnswer
from kip30_backends.etcd.election import EtcdElection
from kip30_backends.etcd.membership import EtcdMembership
from kip30_backends.etcd.resources import Resources
from kip30_backends.etcd.scanning import EtcdScanner
from kip30_backends.etcd.session import LEAST, finding
from kip30_backends.etcd.settings import EtcdSettings
from kip30_backends.etcd.storage import EtcdStorage


class EtcdBackend(Backend):
    """A cluster of etcd servers, version 3.4 or later; 3.4.31, 3.5.13 or later is safe.

    A crashed or silent client keeps its claims for the session timeout, rounded up to whole
    seconds and to two at least, and as much again if the cluster changes its own leader meanwhile.
    """

    name = "etcd"
    settings_class: ClassVar[type[EtcdSettings]] = EtcdSettings
    capabilities = frozenset(
        {
            Capability.COMPARE_AND_SET,
            Capability.FENCING,
            Capability.GUARDS,
            Capability.LISTING,
            Capability.FORKING,
            Capability.SCANNING,
        }
    )
    is_blocking = False
    needs_system_threads = True  # gRPC's own threads wait for Python's, and those for gRPC

    def __init__(self, context: Context, settings: EtcdSettings) -> None:
        """Connect.

        Raises:
            ConfigError: A file of the settings cannot be read. Nothing is connected.
            AuthenticationError: The cluster wants other credentials or certificates.
            UnavailableError: No server answered in the connect timeout.
            UnsupportedError: The connection is borrowed, and this is a forked child.
            LifecycleError: This is a forked child, and gRPC cannot be loaded once more.
        """
        if settings.client:
            self.capabilities -= {Capability.FORKING}
        resources = self._resources = Resources(context, settings)
        self._drop = close_when_dropped(self, resources.drop)
        claims = Claims(resources.calls, resources.sessions)
        self.membership = EtcdMembership(resources.paths, claims)
        self.election = EtcdElection(resources.paths, claims)
        self.storage = EtcdStorage(resources.paths, resources.calls, resources.states)
        self.observe = Observe(resources.states.read, resources.watches.add)
        self.faults = resources.sessions

    @override
    @classmethod
    def servers(cls, settings: EtcdSettings) -> Sequence[tuple[str, EtcdSettings]]:
        if settings.client is not None:  # it alone knows its servers
            return super().servers(settings)
        return [(str(one), replace(settings, endpoints=(one,))) for one in settings.endpoints]

    @override
    @classmethod
    def scanner(cls, context: Context, settings: EtcdSettings, view: View) -> EtcdScanner:
        return EtcdScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        calls = self._resources.calls
        status = calls.status()
        found = finding(status.version)
        return {
            "version": f"etcd {status.version}",
            "least version": LEAST,
            "server": calls.endpoints.current.server,
            "leader": f"{status.leader:x}",
            "role": _role(status),
            "size": f"{status.dbSize} bytes",
            "session timeout": f"{self._resources.sessions.asked_seconds} s",
            **({"finding": found} if found else {}),
        }

    @override
    def close(self) -> None:
        self._drop.detach()
        self._resources.close()


def _role(status: StatusAnswer) -> str:
    if status.isLearner:
        return "learner"
    return "leader" if status.leader == status.header.member_id else "follower"
