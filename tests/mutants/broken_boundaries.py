"""Embedded stores that take names, namespaces or numbers for others, or end at round ones."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from kip30.driver import Context, Watch
from kip30.driver.kit import refusals
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import (
    Claim,
    Entry,
    Fence,
    Kind,
    NamePage,
    Snapshot,
    Target,
    Version,
    Write,
)
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

_THOUSAND = 1_000
_LED_ANYWHERE = "SELECT 1 FROM service WHERE scope = ? AND epoch = ? AND session IS NOT NULL"
_LED_IN_ANY_CASE = """
SELECT 1 FROM service WHERE root = ? AND CAST(scope AS TEXT) = ? COLLATE NOCASE
AND epoch = ? AND session IS NOT NULL
"""
_VERSION_ANYWHERE = "SELECT 1 FROM kv WHERE namespace = ? AND name = ? AND rev = ?"
_REMOVE_ANYWHERE = "DELETE FROM member WHERE scope = ? AND id = ?"
_PRUNE_ANYWHERE = "DELETE FROM service WHERE session IS NULL AND scope <> x''"
_RELEASE_BY_SESSION = "DELETE FROM member WHERE root = ? AND scope = ? AND id = ? AND session = ?"
_LIKE = """
SELECT DISTINCT name FROM kv WHERE root = ? AND CAST(namespace AS TEXT) LIKE ? AND name > ?
ORDER BY name
"""


class FenceOfAnyNamespace(EmbeddedBackend):
    """Looks a fence up by the name of its service alone, in all namespaces."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "_check_fence", _check_anywhere)


class FenceInAnyCase(EmbeddedBackend):
    """Compares the service of a fence without regard to case."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "_check_fence", self._check)

    def _check(self, _check: object, fence: Fence, tx: Any) -> None:
        led = (self._resources.root, fence.service, fence.epoch)
        if tx.execute(_LED_IN_ANY_CASE, led).fetchone() is None:
            raise refusals.fenced(fence)


class GuardOfAnyNamespace(EmbeddedBackend):
    """Compares guards with the keys of any namespace of the configuration."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "_write", _write_guarded_anywhere)


class LeavesEverywhere(EmbeddedBackend):
    """Removes a member that leaves from all namespaces of the configuration."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "_release", _release_everywhere)


class PrunesEverywhere(EmbeddedBackend):
    """Prunes all namespaces of the configuration."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self, "prune", self._prune)

    def _prune(self, prune: Callable[..., Future[Any]], *given: Any, **options: Any) -> Future[Any]:
        if not options["dry_run"]:
            self._resources.database.write(lambda tx: tx.execute(_PRUNE_ANYWHERE))
        return prune(*given, **options)


class ReleasesBySession(EmbeddedBackend):
    """Releases any claim that the session has on the id."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "_release", self._release)

    def _release(self, _release: object, group: str, claim: Claim, tx: Any) -> None:
        place = (self._resources.root, group.encode(), claim.name.encode())
        if tx.execute(_RELEASE_BY_SESSION, (*place, claim.handle.session)).rowcount:
            tx.change(place[0], Kind.GROUP, place[1], place[2])


class ManyReleasedBySession(EmbeddedBackend):
    """Releases by claim, but of several by session."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "release_many", self._release_many)

    def _release_many(
        self, release_many: Callable[..., list[Future[None]]], group: str, claims: Sequence[Claim]
    ) -> list[Future[None]]:
        shown = self.observe.snapshot(Target(Kind.GROUP, group)).result().entries
        return release_many(group, [_as_shown(claim, shown) for claim in claims])


class JoinsGroupAndId(EmbeddedBackend):
    """Keeps members under their group and id, joined by a slash."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "claim", _claim_path)
        mutate(self.membership, "replace", _replace_path)
        mutate(self.membership, "release", _release_path)
        mutate(self.membership, "release_many", _release_paths)
        mutate(self.observe, "snapshot", _snapshot_path)
        mutate(self.observe, "watch", _watch_path)


class ListsLike(EmbeddedBackend):
    """Lists the namespaces that an unescaped LIKE matches."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "list_names", self._list)

    def _list(self, _list: object, namespace: str, after: str, limit: int) -> Future[NamePage]:
        place = (self._resources.root, namespace, after.encode())
        rows = self._resources.database.read(
            lambda connection: connection.execute(_LIKE, place).fetchall()
        )
        names = [row[0].decode() for row in rows]
        return Completed(NamePage(names[:limit], len(names) <= limit))


class KeysInAnyCase(EmbeddedBackend):
    """Watches keys without regard to case."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _watch_lower)
        for method in ("read", "write", "write_many"):
            mutate(self.storage, method, _LOWERED[method])


class ReadsAThousand(EmbeddedBackend):
    """Reads the first thousand of many keys."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "read", _read_some)


class WritesAThousand(EmbeddedBackend):
    """Does the first thousand of many writes, and answers the last of them for the others."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write_many", _write_some)


class ShowsAThousandKeys(EmbeddedBackend):
    """Shows observers the first thousand keys of a namespace."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "snapshot", _first_of(Kind.NAMESPACE))


class ShowsAThousandMembers(EmbeddedBackend):
    """Shows the first thousand members of a group."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "snapshot", _first_of(Kind.GROUP))


class ReleasesAThousand(EmbeddedBackend):
    """Releases the first thousand of many claims."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "release_many", _release_some)


def _check_anywhere(_check: object, fence: Fence, tx: Any) -> None:
    led = (fence.service.encode(), fence.epoch)
    if tx.execute(_LED_ANYWHERE, led).fetchone() is None:
        raise refusals.fenced(fence)


def _write_guarded_anywhere(write: Callable[[Write, Any], Version], one: Write, tx: Any) -> Version:
    for guard in one.guards:
        key = (guard.key.namespace.encode(), guard.key.name.encode(), guard.version.major)
        if tx.execute(_VERSION_ANYWHERE, key).fetchone() is None:
            raise refusals.stale_guard(guard)
    return write(one._replace(guards=()), tx)


def _release_everywhere(
    release: Callable[[str, Claim, Any], None], group: str, claim: Claim, tx: Any
) -> None:
    release(group, claim, tx)
    tx.execute(_REMOVE_ANYWHERE, (group.encode(), claim.name.encode()))


def _as_shown(claim: Claim, shown: Any) -> Claim:
    """Return *claim* with what its session holds the id by now."""
    entry = shown.get(claim.name)
    if entry is None:
        return claim
    return claim._replace(handle=claim.handle._replace(born=entry.version.major))


def _path(group: str, member_id: str) -> tuple[str, str]:
    """Return another group and id with the same path."""
    head, _, rest = f"{group}/{member_id}".partition("/")
    return head, rest


def _renamed(claim: Claim, group: str) -> Claim:
    return claim._replace(name=_path(group, claim.name)[1])


def _claim_path(
    claim: Callable[..., Future[Claim]], group: str, member_id: str, nonce: str, data: bytes
) -> Future[Claim]:
    claimed = claim(*_path(group, member_id), nonce, data)
    return mapped(claimed, lambda answer: answer._replace(name=member_id))


def _replace_path(
    replace: Callable[..., Future[Claim]], group: str, claim: Claim, nonce: str, data: bytes
) -> Future[Claim]:
    replaced = replace(_path(group, "")[0], _renamed(claim, group), nonce, data)
    return mapped(replaced, lambda answer: answer._replace(name=claim.name))


def _release_path(
    release: Callable[[str, Claim], Future[None]], group: str, claim: Claim
) -> Future[None]:
    return release(_path(group, "")[0], _renamed(claim, group))


def _release_paths(
    release: Callable[..., list[Future[None]]], group: str, claims: Sequence[Claim]
) -> list[Future[None]]:
    return release(_path(group, "")[0], [_renamed(claim, group) for claim in claims])


def _target_path(target: Target) -> tuple[Target, str]:
    """Return the target in which the members are, and how their names begin there."""
    if target.kind is Kind.GROUP:
        head, rest = _path(target.scope, "")
        return target._replace(scope=head), rest
    if target.kind is Kind.MEMBER:
        head, rest = _path(target.scope, target.name)
        return target._replace(scope=head, name=rest), rest.removesuffix(target.name)
    return target, ""


def _below(shown: Snapshot, start: str) -> Snapshot:
    entries = {
        name.removeprefix(start): entry
        for name, entry in shown.entries.items()
        if name.startswith(start)
    }
    return shown._replace(entries=entries, delta=None)


def _snapshot_path(
    snapshot: Callable[[Target], Future[Snapshot]], target: Target
) -> Future[Snapshot]:
    place, start = _target_path(target)
    return mapped(snapshot(place), lambda shown: _below(shown, start))


def _watch_path(
    watch: Callable[..., Watch], target: Target, sink: Callable[[Snapshot], None]
) -> Watch:
    place, start = _target_path(target)
    return watch(place, lambda shown: sink(_below(shown, start)))


def _lower(key: Key) -> Key:
    return Key(key.namespace, key.name.lower())


def _watch_lower(
    watch: Callable[..., Watch], target: Target, sink: Callable[[Snapshot], None]
) -> Watch:
    if target.kind is not Kind.VALUE:
        return watch(target, sink)

    def tell(shown: Snapshot) -> None:
        names = [target.name] * len(shown.entries)
        sink(shown._replace(entries=dict(zip(names, shown.entries.values(), strict=True))))

    return watch(target._replace(name=target.name.lower()), tell)


_LOWERED: dict[str, Callable[..., Any]] = {
    "read": lambda read, keys: read([_lower(key) for key in keys]),
    "write": lambda write, one: write(one._replace(key=_lower(one.key))),
    "write_many": lambda write_many, writes: write_many(
        [one._replace(key=_lower(one.key)) for one in writes]
    ),
}


def _read_some(
    read: Callable[[Sequence[Key]], Future[list[Entry | None]]], keys: Sequence[Key]
) -> Future[list[Entry | None]]:
    missing = [None] * len(keys[_THOUSAND:])
    return mapped(read(keys[:_THOUSAND]), lambda entries: [*entries, *missing])


def _write_some(
    write_many: Callable[[Sequence[Write]], list[Future[Version]]], writes: Sequence[Write]
) -> list[Future[Version]]:
    done = write_many(writes[:_THOUSAND])
    return [*done, *([done[-1]] * len(writes[_THOUSAND:]))]


def _release_some(
    release_many: Callable[..., list[Future[None]]], group: str, claims: Sequence[Claim]
) -> list[Future[None]]:
    done = release_many(group, claims[:_THOUSAND])
    return [*done, *([done[-1]] * len(claims[_THOUSAND:]))]


def _first_of(kind: Kind) -> Callable[..., Future[Snapshot]]:
    def snapshot(read: Callable[[Target], Future[Snapshot]], target: Target) -> Future[Snapshot]:
        shown = read(target)
        return mapped(shown, _first) if target.kind is kind else shown

    return snapshot


def _first(shown: Snapshot) -> Snapshot:
    return shown._replace(entries=dict(sorted(shown.entries.items())[:_THOUSAND]))
