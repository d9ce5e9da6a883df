"""``kip30 kv``: key-value storage by hand and from scripts."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from kip30.cli import _completion_values, _kv_bulk, _output, _parameters
from kip30.cli._exit_codes import Status
from kip30.cli._follow import watch
from kip30.cli._groups import Commands
from kip30.cli._output import Lines, Output, Record, Row
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.codecs import BYTES
from kip30.driver.records import Fence, Version, parse_version
from kip30.errors import KeyMissingError, UsageError
from kip30.listeners import KeySetChange, ListenerRegistry, ValueChange
from kip30.locator import PluginLocator
from kip30.operations import set_for

if TYPE_CHECKING:
    from kip30.coordinator import GuardedStorage, ShareGuard

_fenced = click.option(
    "--fence",
    metavar="SERVICE:EPOCH",
    type=_parameters.fence,
    help="Write only while this is the newest epoch of the service.",
)
_guarded = click.option(
    "--guard",
    metavar="GUARD",
    type=_parameters.guard,
    help="Write KEY in the data of a group, only while the member of GUARD has its share.",
)
_expected = click.option(
    "--version",
    "expected",
    metavar="VERSION",
    type=parse_version,
    help="Write only if the key still has this version.",
)
_TITLES = ("VERSION", "VALUE")
_WIDTHS = (12,)
_key = click.argument("key", shell_complete=_completion_values.keys)
_value = click.argument("value", type=_parameters.value)


@click.group("kv", cls=Commands, no_args_is_help=False)
def command() -> None:
    """Read and change keys and values.

    A KEY is NAMESPACE/NAME; a VALUE is the argument itself, or stdin if it is "-". Writes print
    the new version. With --guard a KEY is a name in the data of the guard's group:
    `kip30 kv get kip30.group/GROUP/d.NAME` reads it.
    """


@command.command()
@_key
@_output.prints_records
@opens_store
def get(choice: StoreChoice, key: str, *, output: Output) -> None:
    """Print the value of KEY, byte by byte; with --output also its version.

    Exits with 1 if there is no such key.
    """
    with choice.open() as locator:
        found = locator.storage(BYTES).get(key)
    if found is None:
        raise KeyMissingError(f"there is no key {key!r}")
    if output.is_chosen:
        row = (key, str(found.version), found.value)
        output.line(("KEY", *_TITLES), row, _record(key, found.value, found.version))
    else:
        _output.raw(found.value)


@command.command()
@_key
@_value
@_fenced
@_guarded
@_output.prints_records
@opens_store
def put(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    key: str,
    value: bytes,
    *,
    fence: Fence | None,
    guard: "ShareGuard | None",
    output: Output,
) -> None:
    """Create KEY with VALUE; refused if the key is there."""
    _check_one(fence, guard)
    with choice.open() as locator:
        if guard is not None:
            version = _data_of(locator, guard).put(key, value)
            key = _data_key(key, guard)
        else:
            version = locator.storage(BYTES).put(key, value, fence=fence)
    _written(output, key, version)


@command.command("set")
@_key
@_value
@_fenced
@_guarded
@click.option(
    "--ttl",
    "ttl_seconds",
    metavar="TIME",
    type=_parameters.duration,
    help="Let the next `kip30 kv sweep` after this time delete the key, such as 1h, unless it is"
    " written again.",
)
@_output.prints_records
@opens_store
def set_key(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    key: str,
    value: bytes,
    *,
    fence: Fence | None,
    guard: "ShareGuard | None",
    ttl_seconds: float | None,
    output: Output,
) -> None:
    """Write VALUE at KEY: create the key, or replace its value if it is there."""
    _check_one(fence, guard)
    if guard is not None and ttl_seconds is not None:
        raise UsageError("--ttl excludes --guard: the data of a group end with it")
    with choice.open() as locator:
        if guard is not None:
            version = _data_of(locator, guard).set(key, value)
            key = _data_key(key, guard)
        elif ttl_seconds is not None:
            version = set_for(locator.storage(BYTES), key, value, ttl_seconds, fence=fence)
        else:
            version = locator.storage(BYTES).set(key, value, fence=fence)
    _written(output, key, version)


@command.command()
@_key
@_value
@_expected
@_fenced
@_guarded
@_output.prints_records
@opens_store
def update(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    key: str,
    value: bytes,
    *,
    expected: Version | None,
    fence: Fence | None,
    guard: "ShareGuard | None",
    output: Output,
) -> None:
    """Replace the value of KEY with VALUE; refused if there is no such key."""
    _check_one(fence, guard)
    with choice.open() as locator:
        if guard is not None:
            data = _data_of(locator, guard)
            if expected is None:
                version = data.update(key, value)
            else:
                version = data.compare_and_set(key, expected, value)
            key = _data_key(key, guard)
        elif expected is None:
            version = locator.storage(BYTES).update(key, value, fence=fence)
        else:
            storage = locator.storage(BYTES)
            version = storage.compare_and_set(key, expected, value, fence=fence)
    _written(output, key, version)


@command.command()
@_key
@_expected
@_fenced
@_guarded
@click.option(
    "-r", "--recursive", is_flag=True, help="KEY is a namespace: delete all keys in it and below."
)
@click.option("-n", "--dry-run", is_flag=True, help="With --recursive: delete nothing, and count.")
@click.option("-y", "--yes", "confirmed", is_flag=True, help="With --recursive: do not ask.")
@_output.prints_records
@opens_store
def delete(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    key: str,
    *,
    expected: Version | None,
    fence: Fence | None,
    guard: "ShareGuard | None",
    recursive: bool,
    dry_run: bool,
    confirmed: bool,
    output: Output,
) -> int:
    """Delete KEY; refused if there is no such key.

    With --recursive each key is deleted at the version that it had when it was listed. Keys that
    changed or came meanwhile stay, and so do those that cannot be deleted; then it exits with 1,
    and can be repeated. KEY must not be empty then.
    """
    if recursive:
        if expected is not None or fence is not None or guard is not None:
            raise UsageError("--recursive excludes --version, --fence and --guard")
        return _kv_bulk.delete_below(
            choice, key, dry_run=dry_run, confirmed=confirmed, output=output
        )
    if dry_run or confirmed:
        raise UsageError("--dry-run and --yes are for --recursive")
    _check_one(fence, guard)
    with choice.open() as locator:
        if guard is not None:
            _data_of(locator, guard).delete(key, expected=expected)
            key = _data_key(key, guard)
        else:
            locator.storage(BYTES).delete(key, expected=expected, fence=fence)
    if output.is_chosen:
        output.line(("KEY",), (key,), _key_record(key))
    return Status.OK


@command.command("list")
@click.argument("namespace", default="")
@click.option(
    "-r", "--recursive", is_flag=True, help="Print the keys of all namespaces below, too."
)
@_output.prints_records
@opens_store
def list_keys(choice: StoreChoice, namespace: str, *, recursive: bool, output: Output) -> None:
    """Print the keys of NAMESPACE, one level deep.

    Without NAMESPACE, those that have none: keys without a slash; with --recursive all keys but
    kip30's own.
    """
    if recursive:
        _print_keys(output, _kv_bulk.list_below(choice, namespace))
        return
    with choice.open() as locator:
        _print_keys(output, locator.storage(BYTES).list(namespace))


def _print_keys(output: Output, keys: Iterable[str]) -> None:
    lines = output.lines(("KEY",))
    for key in keys:
        lines.print([(key,)], partial(_key_record, key))


def _key_record(key: str) -> Record:
    return {"key": key}


@command.command("watch")
@_key
@click.option("--keys", is_flag=True, help="Watch the set of keys in the namespace KEY.")
@_output.prints_records
@opens_store
def watch_key(choice: StoreChoice, key: str, *, keys: bool, output: Output) -> int:
    """Print the value of KEY now and after every change, until interrupted.

    A line is the version and the value, or "-" if there is no such key; with --keys it is "+" or
    "-" and a key that was added or removed. Changes in quick succession may be merged.
    """
    with choice.open() as locator:
        registry = locator.listener_registry(BYTES)
        if keys:
            listen = partial(_listen_to_keys, registry, key)
            return watch(locator, listen, partial(_show_keys, output.lines(("CHANGE", "KEY"))))
        listen_to_value = partial(_listen_to_value, registry, key)
        lines = output.lines(_TITLES, _WIDTHS)
        return watch(locator, listen_to_value, partial(_show_value, lines))


command.add_command(_kv_bulk.tree)
command.add_command(_kv_bulk.export_keys)
command.add_command(_kv_bulk.import_keys)
command.add_command(_kv_bulk.sweep)


def _listen_to_value(
    registry: ListenerRegistry[bytes], key: str, listener: Callable[[ValueChange[bytes]], object]
) -> None:
    registry.add_value_change_listener(key, listener, initial=True)


def _listen_to_keys(
    registry: ListenerRegistry[bytes], namespace: str, listener: Callable[[KeySetChange], object]
) -> None:
    registry.add_key_set_change_listener(namespace, listener, initial=True)


def _show_value(lines: Lines, change: ValueChange[bytes]) -> None:
    row: Row = ("-",) if change.value is None else (str(change.version), change.value)
    lines.print([row], partial(_record, change.key, change.value, change.version))


def _show_keys(lines: Lines, change: KeySetChange) -> None:
    added, removed = sorted(change.added), sorted(change.removed)
    rows = [*(("-", name) for name in removed), *(("+", name) for name in added)]

    def record() -> Record:
        names = {"added": added, "removed": removed, "keys": sorted(change.keys)}
        return {"namespace": change.namespace, **names}

    lines.print(rows, record)


def _check_one(fence: Fence | None, guard: "ShareGuard | None") -> None:
    if fence is not None and guard is not None:
        raise UsageError("--fence and --guard exclude each other: give one of them")


def _data_of(locator: PluginLocator, guard: "ShareGuard") -> "GuardedStorage[bytes]":
    from kip30.coordinator import storage_of_share  # noqa: PLC0415  slow to import

    return storage_of_share(locator, guard, BYTES)


def _data_key(name: str, guard: "ShareGuard") -> str:
    from kip30.coordinator.keys import GroupKeys  # noqa: PLC0415  slow to import

    return GroupKeys(guard.group).data(name)


def _written(output: Output, key: str, version: Version) -> None:
    output.line(("VERSION",), (str(version),), {"key": key, "version": str(version)})


def _record(key: str, value: bytes | None, version: Version | None) -> dict[str, str | None]:
    shown = None if version is None else str(version)
    return {"key": key, **_output.text_or_base64("value", value), "version": shown}
