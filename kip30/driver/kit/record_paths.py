"""Paths of the records of a target, in stores with keys, and a page of all names."""

from collections.abc import Iterable

from kip30.driver.key_layout import Paths
from kip30.driver.records import Kind, NamePage, Target
from kip30.names import Key


def leader_path(paths: Paths, service: str) -> str:
    """Return the path of the leader of *service*."""
    return f"{paths.service(service)}/leader"


def path_of(paths: Paths, target: Target) -> str:
    """Return the path of the only record of *target*.

    For a group or a namespace, return the prefix of the paths of all records, which ends with a
    slash.
    """
    match target.kind:
        case Kind.VALUE:
            return paths.value(Key(target.scope, target.name))
        case Kind.MEMBER:
            return paths.member(target.scope, target.name)
        case Kind.SERVICE:
            return leader_path(paths, target.scope)
        case Kind.NAMESPACE:
            return f"{paths.namespace(target.scope)}/"
        case Kind.GROUP:
            return f"{paths.group(target.scope)}/"


def last_page(names: Iterable[str], after: str) -> NamePage:
    """Return those of all *names* of a namespace that follow *after*, as `list_names` does."""
    # The order of code points is that of UTF-8.
    return NamePage(sorted(name for name in names if name > after), is_last=True)
