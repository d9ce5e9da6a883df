"""`delete_group`: removes the records of a group that has no members any longer."""

from collections.abc import Iterable
from contextlib import suppress

from kip30.codecs import BYTES
from kip30.coordinator.keys import GroupKeys
from kip30.driver import Capability
from kip30.errors import (
    GroupNotEmptyError,
    GuardError,
    KeyMissingError,
    UnsupportedError,
    VersionConflictError,
)
from kip30.locator import PluginLocator
from kip30.membership import GroupMembership
from kip30.storage import Guards, Storage, Versioned


def delete_group(locator: PluginLocator, group_id: str, *, with_data: bool = False) -> bool:
    """Delete what *group_id* has left in the store, and return whether there was anything.

    Names that are used once, such as one group for each job, would otherwise add up. The state goes
    with the shares in it, those that wait for static members included, and so do the instance ids;
    with *with_data* also what was written through `AbstractCoordinator.storage`. A group of that id
    begins at generation 1 again, and guards of the old one never hold there. The election's epoch
    continues; `kip30 prune` removes what the store keeps of it.

    Call it when no process of the group runs. One that is only paused, with its session lost, finds
    the state gone and joins again; a static one then takes its instance again, unless another
    process has it.

    Raises:
        InvalidNameError: *group_id* is not a valid name. Nothing was deleted.
        UnsupportedError: The store has no ``compare-and-set`` or no ``listing``. Nothing was
            deleted.
        GroupNotEmptyError: The group has members, or a record that cannot be read and may be one's:
            nothing was deleted. Or one has joined meanwhile: then the state is there, and data and
            instance ids may be deleted.
        UnavailableError: Some records may be deleted. Call it again.
        OutcomeUnknownError: The same.
    """
    keys = GroupKeys(group_id)
    _check_capabilities(locator)
    storage = locator.storage(BYTES)
    # Before the look at the members: parts that a later member writes are not among these.
    parts = [*storage.list(keys.assignments)]
    found = storage.get(keys.state)
    _require_empty(locator.group_membership(keys.group, BYTES), group_id)
    names = [*keys.own_records(storage.list(keys.group), with_data=with_data)]
    try:
        _delete_all(storage, names, _guards(locator, keys, found))
        # Last but the parts, so that the state's version guards all before it.
        if found is not None:
            with suppress(KeyMissingError):
                storage.delete(keys.state, expected=found.version)
    except (GuardError, VersionConflictError) as error:
        raise GroupNotEmptyError(f"a member of group {group_id!r} has just joined") from error
    _delete_all(storage, parts, {})
    return found is not None or bool(names or parts)


def _require_empty(group: GroupMembership[bytes], group_id: str) -> None:
    members = group.membership()
    for name in members.unreadable:
        raise GroupNotEmptyError(
            f"group {group_id!r} has the record {name!r}, which cannot be read and may be a"
            " member's: nothing was deleted"
        )
    if members.incarnations:
        raise GroupNotEmptyError(f"group {group_id!r} has members: nothing was deleted")


def _check_capabilities(locator: PluginLocator) -> None:
    backend = locator.backend
    for needed in (Capability.COMPARE_AND_SET, Capability.LISTING):
        if needed not in backend.capabilities:
            raise UnsupportedError(f"store {backend.name!r} does not offer {needed.value}")


def _guards(locator: PluginLocator, keys: GroupKeys, state: Versioned[bytes] | None) -> Guards:
    """Return guards that refuse a deletion once the group has another state, if there are any."""
    can_guard = Capability.GUARDS in locator.backend.capabilities
    return {keys.state: state.version} if state is not None and can_guard else {}


def _delete_all(storage: Storage[bytes], names: Iterable[str], guards: Guards) -> None:
    for name in names:
        with suppress(KeyMissingError):  # another call has deleted it
            storage.delete(name, guards=guards)
