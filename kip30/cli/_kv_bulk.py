"""The subcommands of ``kip30 kv`` for many keys: tree, export, import, sweep."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO

import click

from kip30.cli import _output, _parameters
from kip30.cli._confirmation import confirm
from kip30.cli._exit_codes import Status
from kip30.cli._failures import explain, say
from kip30.cli._follow import pause
from kip30.cli._output import Field, Lines, Output, Row
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.cli._unreadable import report_unreadable
from kip30.codecs import BYTES
from kip30.config import Properties
from kip30.errors import OutcomeUnknownError, UnavailableError, UsageError
from kip30.locator import PluginLocator
from kip30.operations import (
    LONGEST_LINE,
    ConflictRule,
    Deletion,
    Import,
    ImportPlan,
    KeyScan,
    StoredKey,
    Sweep,
    delete_versions,
    parse_exported,
    plan_import,
    sweep_keys,
    write_import,
)

_SHOWN = 10
_SHORTEST_PAUSE_SECONDS = 1.0
_INDENT = "  "
_WIDTHS = (40, 8, 12)

_namespace = click.argument("namespace", default="")
_internal = click.option("--all", "internal", is_flag=True, help="Include kip30's own keys.")
_dry_run = click.option("-n", "--dry-run", is_flag=True, help="Change nothing, and count.")


def list_below(choice: StoreChoice, namespace: str) -> Iterator[str]:
    """Yield all keys of *namespace* and below, in the order of their UTF-8 bytes."""
    scan = KeyScan(choice.properties(), namespace)
    yield from sorted((one.key for one in scan), key=str.encode)
    report_unreadable(scan.unreadable)


@click.command()
@_namespace
@click.option("--values", is_flag=True, help="Print the values, too.")
@_internal
@_output.prints_records
@opens_store
def tree(
    choice: StoreChoice, namespace: str, *, values: bool, internal: bool, output: Output
) -> int:
    """Print the keys of NAMESPACE and below as a tree, all of them without NAMESPACE.

    Namespaces end in "/"; a key has the size of its value in bytes, and its version. Where tabs
    separate the fields, each line has the whole name.
    """
    scan = KeyScan(choice.properties(), namespace, internal=internal)
    found = sorted(scan, key=lambda one: one.key.encode())
    titles = ("KEY", "BYTES", "VERSION", *(["VALUE"] if values else []))
    lines = output.lines(titles, _WIDTHS)
    above: list[str] = []
    for one in found:
        *namespaces, _ = one.key.split("/")
        rows = _tree_rows(one, above, values=values, indented=output.is_aligned)
        lines.print(rows, partial(_record, one, values=values))
        above = namespaces
    return _ended(scan)


def _tree_rows(
    one: StoredKey, above: Sequence[str], *, values: bool, indented: bool
) -> Iterator[Row]:
    """Yield the namespaces of *one* that are not in those *above* it, and then the key."""

    def row(path: Sequence[str], end: str, *fields: Field) -> Row:
        name = f"{_INDENT * (len(path) - 1)}{path[-1]}" if indented else "/".join(path)
        return f"{name}{end}", *fields

    *namespaces, name = one.key.split("/")
    common = 0
    while common < min(len(above), len(namespaces)) and above[common] == namespaces[common]:
        common += 1
    for depth in range(common, len(namespaces)):
        yield row(namespaces[: depth + 1], "/")
    shown = [one.value] if values else []
    yield row([*namespaces, name], "", len(one.value), str(one.version), *shown)


@click.command("export")
@_namespace
@_internal
@opens_store
def export_keys(choice: StoreChoice, namespace: str, *, internal: bool) -> int:
    """Print the keys of NAMESPACE and below, a JSON object a line, for `kip30 kv import`.

    Lines are in the order of the store. Exits with 1 if there are records that cannot be read.
    For many gigabytes, for another store under load, or to go on after an interruption, use
    `kip30 pipeline snapshot`.
    """
    scan = KeyScan(choice.properties(), namespace, internal=internal)
    for one in scan:
        _output.json_line(_record(one, values=True))
    return _ended(scan)


@click.command("import")
@click.argument("exported", metavar="[FILE]", type=_parameters.Input(), default="-")
@click.option(
    "--on-conflict",
    type=click.Choice([one.value for one in ConflictRule]),
    default=ConflictRule.FAIL.value,
    show_default=True,
    help="What to do with keys that have another value: write nothing at all, keep it, replace it.",
)
@_dry_run
@_output.prints_records
@opens_store
def import_keys(
    choice: StoreChoice, exported: BinaryIO, *, on_conflict: str, dry_run: bool, output: Output
) -> int:
    """Write the keys in FILE, which `kip30 kv export` has printed; else those of stdin.

    All lines are checked first. Versions are not kept: a key gets a new one. Prints how many keys
    were created, updated, kept, and equal already. It can be repeated. Exits with 1 if keys have
    another value, or get one meanwhile.
    """
    values = parse_exported(iter(partial(exported.readline, LONGEST_LINE + 1), b""))
    rule = ConflictRule(on_conflict)
    with choice.open() as locator:
        storage = locator.storage(BYTES)
        plan = plan_import(storage, values, value_bytes=locator.backend.limits.value_bytes)
        stops = rule is ConflictRule.FAIL and bool(plan.different)
        update = rule is ConflictRule.UPDATE
        done = (
            _nothing_done(plan, update=update and dry_run, create=dry_run and not stops)
            if dry_run or stops
            else write_import(storage, plan, update=update)
        )
    kept = len(plan.different) if not update else 0
    counts = {"created": done.created, "updated": done.updated, "kept": kept, "equal": plan.equal}
    failed = len(done.conflicts) + len(done.unknown) + len(done.failed)
    counts["failed"] = failed
    _print_counts(output, counts, {}, dry_run=dry_run)
    if stops:
        _name("has another value", [*plan.different])
        say("nothing was written — --on-conflict skip keeps these keys, update replaces them")
        return Status.REFUSED
    return _import_status(done)


@click.command()
@click.option(
    "--every",
    "period_seconds",
    metavar="TIME",
    type=_parameters.duration,
    help="Sweep again and again, with this pause, such as 1min, until interrupted.",
)
@_dry_run
@_output.prints_records
@opens_store
def sweep(
    choice: StoreChoice, *, period_seconds: float | None, dry_run: bool, output: Output
) -> int:
    """Delete the keys of `kip30 kv set --ttl` whose time is over, by the clock of this machine.

    Prints how many were deleted, how many have time left, and how many were written again or
    deleted before their end, and so stay as they are. Exits with 1 if keys cannot be deleted. With
    --every it goes on if the store does not answer for a while.
    """
    if period_seconds is not None and period_seconds < _SHORTEST_PAUSE_SECONDS:
        raise UsageError(f"--every takes {_SHORTEST_PAUSE_SECONDS:g} s or more")
    properties = choice.properties()  # once: the file may be a pipe
    lines = output.lines(("DELETED", "WAITING", "CHANGED", "KEPT"), (8, 8, 8))
    while True:
        swept, error = _sweep(properties, dry_run=dry_run)
        if swept is not None:
            _print_sweep(lines, swept, dry_run=dry_run)
        if period_seconds is None:
            if error is not None:
                raise error
            return Status.REFUSED if swept is not None and swept.kept else Status.OK
        if error is not None:
            say(f"the store does not answer, the next sweep tries again: {explain(error).what}")
        if pause(period_seconds):
            return Status.OK


def _sweep(
    properties: Properties, *, dry_run: bool
) -> tuple[Sweep | None, UnavailableError | OutcomeUnknownError | None]:
    """Return what was done, if the records could be read, and why the store does not answer.

    Each sweep opens the store again, because it may have been replaced since the last one.
    """
    try:
        with PluginLocator().startup(properties) as locator:
            swept = sweep_keys(properties, locator.storage(BYTES), dry_run=dry_run)
    except UnavailableError as error:
        return None, error
    return swept, swept.error


def _print_sweep(lines: Lines, swept: Sweep, *, dry_run: bool) -> None:
    counts = {
        "deleted": swept.deleted,
        "waiting": swept.waiting,
        "changed": swept.changed,
        "kept": len(swept.kept),
    }
    lines.print([tuple(counts.values())], lambda: {**counts, "dry_run": dry_run})
    for key, reason in [*swept.kept.items()][:_SHOWN]:
        say(f"{key!r} stays: {reason}")


def _nothing_done(plan: ImportPlan, *, update: bool, create: bool) -> Import:
    created = len(plan.missing) if create else 0
    return Import(created, len(plan.different) if update else 0, [], [], {})


def _import_status(done: Import) -> int:
    _name("was created, changed or deleted meanwhile, and stays so", done.conflicts)
    _name("may have been written: its answer was lost", done.unknown)
    for key, error in [*done.failed.items()][:_SHOWN]:
        say(f"{key!r} was not written: {error}")
    if done.silence is not None:
        raise done.silence
    return Status.REFUSED if done.conflicts or done.failed else Status.OK


def delete_below(
    choice: StoreChoice, namespace: str, *, dry_run: bool, confirmed: bool, output: Output
) -> int:
    """Delete the keys of *namespace* and below, each at the version that was listed."""
    if not namespace:
        raise UsageError("--recursive needs a namespace: it does not delete all keys of a store")
    properties = choice.properties()
    scan = KeyScan(properties, namespace)
    listed = [(one.key, one.version) for one in scan]
    if not (dry_run or confirmed):
        confirm(
            f"Delete {len(listed)} keys below {namespace!r}?",
            otherwise="--recursive needs --yes",
        )
    if dry_run:
        done = Deletion(len(listed), [], [], [], [])
    else:
        with PluginLocator().startup(properties) as locator:
            done = delete_versions(locator.storage(BYTES), listed)
    _name("has changed, and stays", done.changed)
    _name("may have been deleted: its answer was lost", done.unknown)
    for key, error in [*done.kept.items()][:_SHOWN]:
        say(f"{key!r} was not deleted: {error}")
    counts = {
        "deleted": done.deleted,
        "changed": len(done.changed),
        "gone": len(done.gone),
        "unknown": len(done.unknown),
        "left": len(done.left),
        "kept": len(done.kept),
    }
    _print_counts(output, counts, {"namespace": namespace}, dry_run=dry_run)
    ended = _ended(scan)
    if done.error is not None:
        raise done.error
    return Status.REFUSED if done.changed or done.kept else ended


def _print_counts(
    output: Output, counts: Mapping[str, int], named: Mapping[str, str], *, dry_run: bool
) -> None:
    titles = ("KEYS", "WOULD BE" if dry_run else "NUMBER")
    output.table(titles, counts.items(), [{**named, **counts, "dry_run": dry_run}])


def _ended(scan: KeyScan) -> int:
    report_unreadable(scan.unreadable)
    return Status.REFUSED if scan.unreadable else Status.OK


def _name(what: str, keys: Sequence[str]) -> None:
    for key in keys[:_SHOWN]:
        say(f"{key!r} {what}")
    if len(keys) > _SHOWN:
        say(f"{len(keys) - _SHOWN} further keys likewise")


def _record(one: StoredKey, *, values: bool) -> dict[str, str | int | None]:
    shown = _output.text_or_base64("value", one.value) if values else {"bytes": len(one.value)}
    return {"key": one.key, **shown, "version": str(one.version)}
