"""Wrong calls are refused before anything is sent, with an error of kip30 that says why."""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30 import (
    ClosedError,
    ConfigError,
    InvalidNameError,
    LifecycleError,
    PluginLocator,
    UsageError,
    Version,
    parse_version,
)
from kip30.aio import AsyncPluginLocator
from kip30.driver import Backend, Context
from kip30.runtime.open_store import OpenStore
from kip30_conformance.clients.crowd import at_once
from kip30_conformance.process_resources import expect_no_more_than, resources_held

from .trouble import faults


class Unhashable(list[int]):
    def __call__(self, _change: object) -> None: ...


Register = Callable[[PluginLocator, Any], object]

REGISTERS: dict[str, Register] = {
    "value": lambda one, call: one.listener_registry().add_value_change_listener("k", call),
    "key set": lambda one, call: one.listener_registry().add_key_set_change_listener("n", call),
    "remove": lambda one, call: one.listener_registry().remove_value_change_listener("k", call),
    "group": lambda one, call: one.group_membership("g").add_listener(call),
    "leader": lambda one, call: one.leader_election("s").add_listener(call),
    "session": lambda one, call: one.add_session_listener(call),
}


@pytest.mark.parametrize("callback", [None, "print", Unhashable()], ids=repr)
@pytest.mark.parametrize("register", REGISTERS.values(), ids=REGISTERS)
def test_an_invalid_listener_is_refused(
    client: PluginLocator, register: Register, callback: Any
) -> None:
    with faults(client).cut_off(), pytest.raises(UsageError, match="pass a function"):
        register(client, callback)


GUARDS: dict[str, tuple[Any, str]] = {
    "a list": (["n/g"], "guards must map keys to versions, not list"),
    "too many": (
        {f"n/{one}": Version(1) for one in range(5)},
        "a write takes up to 4 guards, not 5",
    ),
    "no version": ({"n/g": "1"}, "the version of a guard must be a Version, not str"),
    "other namespace": (
        {"m/g": Version(1)},
        "'m/g' cannot guard a write of 'n/k': it must be in the same namespace",
    ),
    "the key itself": (
        {"n/k": Version(1)},
        "'n/k' cannot guard a write of itself: use compare_and_set",
    ),
}


@pytest.mark.parametrize(("guards", "why"), GUARDS.values(), ids=GUARDS)
def test_invalid_guards_are_refused(client: PluginLocator, guards: Any, why: str) -> None:
    with faults(client).cut_off(), pytest.raises(UsageError) as caught:
        client.storage().put("n/k", "v", guards=guards)
    assert str(caught.value) == why


async def _nominate(properties: dict[str, str], **callbacks: Any) -> None:
    async with AsyncPluginLocator(properties) as locator:
        await locator.leader_election("s").nominate("c", "", **callbacks)


async def _join(properties: dict[str, str], **callbacks: Any) -> None:
    async with AsyncPluginLocator(properties) as locator:
        await locator.group_membership("g").join("m", "", **callbacks)


@pytest.mark.parametrize("name", ["on_elected", "on_lost"])
def test_a_callback_of_a_candidate_must_be_callable(
    name: str, client: PluginLocator, tmp_path: Path
) -> None:
    election, wrong = client.leader_election("s"), {name: 5}
    with pytest.raises(UsageError, match=f"{name} must be callable, not int"):
        election.nominate("c", "", **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"{name} must be callable, not int"):
        asyncio.run(_nominate(settings(tmp_path), **wrong))
    assert election.nominate("c", "")


@pytest.mark.parametrize("name", ["on_lost", "on_evicted", "on_rejoined"])
def test_a_callback_of_a_member_must_be_callable(
    name: str, client: PluginLocator, tmp_path: Path
) -> None:
    group, wrong = client.group_membership("g"), {name: 5}
    with pytest.raises(UsageError, match=f"{name} must be callable, not int"):
        group.join("m", "", **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"{name} must be callable, not int"):
        asyncio.run(_join(settings(tmp_path), **wrong))
    assert group.membership_list() == set()


def test_one_key_is_not_several(client: PluginLocator) -> None:
    storage: Any = client.storage()
    for keys in ("abc", b"abc", 7, None):
        with pytest.raises(UsageError, match="pass a list"):
            storage.fetch_many(keys)
    for values in ([("a", "b")], "ab", None):
        with pytest.raises(UsageError, match="must map keys to values"):
            storage.put_many(values)


def test_a_namespace_with_a_trailing_slash_is_refused(client: PluginLocator) -> None:
    for call in (
        lambda: client.storage().list("config/"),
        lambda: client.listener_registry().add_key_set_change_listener("config/", print),
    ):
        with pytest.raises(InvalidNameError, match="leave the trailing slash out"):
            call()


@pytest.mark.parametrize(
    "text", ["9" * 5000, str(2**63), "1.", ".1", "1.2.3", "-1", "\u0661", "", None]
)
def test_an_invalid_version_is_refused(text: Any) -> None:
    with pytest.raises(UsageError):
        parse_version(text)


def test_the_largest_version_is_one() -> None:
    assert parse_version(f"{2**63 - 1}.7") == Version(2**63 - 1, 7)


@pytest.mark.parametrize(
    "config",
    [
        {"plugin.backend": "embedded", "plugin.embedded.directory": "/tmp/a\0b"},  # noqa: S108
        {"plugin.namespace": "${file:/tmp/\0}"},
        "/tmp/\0",  # noqa: S108  never opened
    ],
)
def test_a_path_with_a_nul_is_a_mistake_in_the_configuration(config: Any) -> None:
    with pytest.raises(ConfigError):
        PluginLocator().startup(config)


def settings(folder: Path) -> dict[str, str]:
    return {"plugin.backend": "embedded", "plugin.embedded.directory": str(folder / "state")}


@pytest.mark.parametrize("config", [3, b"x", ["plugin.backend"]], ids=repr)
def test_an_invalid_configuration_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match="path of a properties file or a mapping of its keys"):
        PluginLocator().startup(config)


@pytest.mark.parametrize("codec", [1, None, "json", Unhashable, json], ids=repr)
def test_an_invalid_codec_is_refused(client: PluginLocator, codec: Any) -> None:
    for hand_out in (
        client.storage,
        client.listener_registry,
        partial(client.group_membership, "g"),
        partial(client.leader_election, "s"),
    ):
        with pytest.raises(UsageError, match=r"codec must be a Codec, .*: use kip30\.STR"):
            hand_out(codec)


def test_of_startups_at_once_one_opens_the_store(tmp_path: Path) -> None:
    PluginLocator().startup(settings(tmp_path)).close()
    before = resources_held()
    for _ in range(10):
        locator = PluginLocator()
        started = at_once([partial(locator.startup, settings(tmp_path))] * 4)
        assert sum(one is locator for one in started) == 1
        assert sum(isinstance(one, LifecycleError) for one in started) == 3
        assert locator.storage().get("k") is None
        locator.close()
    expect_no_more_than(before)


def test_a_startup_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    locator = PluginLocator()
    for _ in range(2):
        with pytest.raises(ConfigError):
            locator.startup({"plugin.backend": "nonsense"})
    with locator.startup(settings(tmp_path)):
        assert locator.storage().get("k") is None
        with pytest.raises(LifecycleError, match="started already"):
            locator.startup(settings(tmp_path))


@pytest.mark.parametrize("was_started", [True, False])
def test_a_closed_locator_is_not_started(tmp_path: Path, *, was_started: bool) -> None:
    locator = PluginLocator()
    if was_started:
        locator.startup(settings(tmp_path))
    locator.close()
    with pytest.raises(LifecycleError, match="closed: make another one"):
        locator.startup(settings(tmp_path))
    with pytest.raises(ClosedError):
        locator.storage()


def test_a_locator_closed_while_it_starts_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = threading.Event(), threading.Event()

    def connect(backend: Backend, context: Context, **more: Any) -> OpenStore:
        opened.set()
        closed.wait(60)
        return OpenStore(backend, context, **more)

    PluginLocator().startup(settings(tmp_path)).close()
    before = resources_held()
    monkeypatch.setattr("kip30.locator.OpenStore", connect)
    locator = PluginLocator()
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(locator.startup, settings(tmp_path))
        assert opened.wait(60)
        locator.close()
        closed.set()
        assert isinstance(starting.exception(), LifecycleError)
    expect_no_more_than(before)
