"""Consul as a backend."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from kip30.driver import Backend, Capability, Context, Limits
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.kit.watch import Observe
from kip30.driver.scanning import View
from kip30_backends.consul.claims import Claims
from kip30_backends.consul.election import ConsulElection
from kip30_backends.consul.membership import ConsulMembership
from kip30_backends.consul.resources import Resources
from kip30_backends.consul.scanning import ConsulScanner
from kip30_backends.consul.settings import ConsulSettings
from kip30_backends.consul.storage import ConsulStorage


class ConsulBackend(Backend):
    """Agents or servers of a Consul cluster, version 1.14 or later.

    A crashed or silent client keeps its claims for the session timeout, and as much again if the
    cluster changes its own leader meanwhile; then the lock-delay passes, which is the lease margin.
    """

    name = "consul"
    settings_class: ClassVar[type[ConsulSettings]] = ConsulSettings
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
    # With a thousand targets, those that may have changed are read one after the other.
    limits = Limits(observe_seconds=0.25)
    is_blocking = False

    def __init__(self, context: Context, settings: ConsulSettings) -> None:
        """Connect.

        Raises:
            ConfigError: A file of the settings cannot be read, or the servers grant no session
                that ends as soon as was asked for.
            AuthenticationError: The cluster wants another token or certificate.
            UnavailableError: No server answered in the connect timeout.
        """
        resources = self._resources = Resources(context, settings)
        self._drop = close_when_dropped(self, resources.drop)
        claims = Claims(resources.calls, resources.sessions)
        self.membership = ConsulMembership(resources.paths, claims)
        self.election = ConsulElection(resources.paths, claims)
        self.storage = ConsulStorage(resources.paths, resources.calls, resources.states)
        self.observe = Observe(resources.states.snapshot, resources.watches.add)
        self.faults = resources.sessions

    @override
    @classmethod
    def servers(cls, settings: ConsulSettings) -> Sequence[tuple[str, ConsulSettings]]:
        return [(str(one), replace(settings, address=(one,))) for one in settings.address]

    @override
    @classmethod
    def scanner(cls, context: Context, settings: ConsulSettings, view: View) -> ConsulScanner:
        return ConsulScanner(context, settings, view)

    @override
    def describe(self) -> Mapping[str, str]:
        return self._resources.describe()

    @override
    def close(self) -> None:
        self._drop.detach()
        self._resources.close()
