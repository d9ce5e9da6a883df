"""One harmless call of every public method, so that a check can try them all."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kip30 import (
    GroupMembership,
    LeaderElection,
    ListenerRegistry,
    PluginLocator,
    Storage,
    Version,
)

Call = Callable[[Any], object]

_TABLE: dict[type[Any], dict[str, Call]] = {
    PluginLocator: {
        "backend": lambda locator: locator.backend,
        "context": lambda locator: locator.context,
        "metrics": lambda locator: locator.metrics(),
        "storage": lambda locator: locator.storage(),
        "listener_registry": lambda locator: locator.listener_registry(),
        "group_membership": lambda locator: locator.group_membership("g"),
        "leader_election": lambda locator: locator.leader_election("s"),
        "add_session_listener": lambda locator: locator.add_session_listener(print),
        "remove_session_listener": lambda locator: locator.remove_session_listener(print),
    },
    Storage: {
        "get": lambda storage: storage.get("k"),
        "fetch": lambda storage: storage.fetch("k"),
        "fetch_many": lambda storage: storage.fetch_many(["k"]),
        "put": lambda storage: storage.put("k", "v"),
        "put_many": lambda storage: storage.put_many({"k": "v"}),
        "update": lambda storage: storage.update("k", "v"),
        "set": lambda storage: storage.set("k", "v"),
        "compare_and_set": lambda storage: storage.compare_and_set("k", Version(1), "v"),
        "delete": lambda storage: storage.delete("k"),
        "list": lambda storage: list(storage.list("n")),
        "last_write": lambda storage: storage.last_write("k"),
    },
    ListenerRegistry: {
        "add_value_change_listener": lambda one: one.add_value_change_listener("k", print),
        "add_key_set_change_listener": lambda one: one.add_key_set_change_listener("n", print),
    },
    GroupMembership: {
        "join": lambda group: group.join("m", ""),
        "update": lambda group: group.update("m", ""),
        "leave": lambda group: group.leave("m"),
        "member": lambda group: group.member("m"),
        "incarnations": lambda group: group.incarnations(),
        "share_lease": lambda group: group.share_lease("m"),
        "membership": lambda group: group.membership(),
        "membership_list": lambda group: group.membership_list(),
        "add_listener": lambda group: group.add_listener(print),
    },
    LeaderElection: {
        "get_leader": lambda election: election.get_leader(),
        "nominate": lambda election: election.nominate("c", ""),
        "resign": lambda election: election.resign("c"),
        "leadership": lambda election: election.leadership("c"),
        "candidates": lambda election: election.candidates(),
        "lead": lambda election: election.lead("c", "").__enter__(),
        "wait_elected": lambda election: election.wait_elected("c", 0),
        "share_lease": lambda election: election.share_lease(None),
        "add_listener": lambda election: election.add_listener(print),
    },
}

_ALWAYS_ALLOWED = {"startup", "close"}
_HARMLESS = "remove_"


class Try(NamedTuple):
    """A method of the class *owner*, and a call of it on an instance."""

    owner: type[Any]
    method: str
    call: Call

    def on(self, locator: PluginLocator) -> Callable[[], object]:
        """Return the call, made on *locator* or on a handle that *locator* hands out now."""
        target: Any = _HANDLES[self.owner](locator)
        return lambda: self.call(target)


_HANDLES: dict[type[Any], Call] = {
    PluginLocator: lambda locator: locator,
    Storage: lambda locator: locator.storage(),
    ListenerRegistry: lambda locator: locator.listener_registry(),
    GroupMembership: lambda locator: locator.group_membership("g"),
    LeaderElection: lambda locator: locator.leader_election("s"),
}

EVERY_CALL = [
    Try(owner, method, call) for owner, calls in _TABLE.items() for method, call in calls.items()
]


def forgotten() -> set[str]:
    """Return the public methods that `EVERY_CALL` lacks; removals never fail and do not count."""
    methods = {
        f"{owner.__name__}.{name}"
        for owner in _TABLE
        for name in vars(owner)
        if not name.startswith(("_", _HARMLESS)) and name not in _ALWAYS_ALLOWED
    }
    return methods - {f"{one.owner.__name__}.{one.method}" for one in EVERY_CALL}
