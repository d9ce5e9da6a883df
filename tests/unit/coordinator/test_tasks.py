"""`WorkerCoordinator` and `LeaderCoordinator` on the embedded store."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from kip30 import PluginLocator, UsageError
from kip30.coordinator import LeaderCoordinator, MemberIdentity, MemberState, WorkerCoordinator
from kip30_conformance.clients.item_coordinator import quick_config
from kip30_conformance.polling import eventually, throughout

from .conftest import OpenClient
from .test_abstract_coordinator import BrokenError

TASKS = [f"task-{number}" for number in range(6)]


class Work:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def on_started(self, tasks: Sequence[str]) -> None:
        self.calls.append(("started", list(tasks)))

    def on_stopped(self, tasks: Sequence[str]) -> None:
        self.calls.append(("stopped", list(tasks)))

    def on_lost(self, tasks: Sequence[str]) -> None:
        self.calls.append(("lost", list(tasks)))


Start = Callable[..., tuple[WorkerCoordinator, Work]]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(ends: ExitStack) -> Start:
    def start_one(
        client: PluginLocator,
        url: str,
        tasks: Callable[[], Sequence[str]] = lambda: TASKS,
        **more: Any,
    ) -> tuple[WorkerCoordinator, Work]:
        work = Work()
        one = WorkerCoordinator(
            client,
            "g",
            url=url,
            tasks=tasks,
            listener=work,
            config=quick_config(client, **more.pop("config", {})),
            **more,
        )
        ends.callback(one.close)
        one.start()
        return one, work

    return start_one


def await_tasks(*workers: tuple[WorkerCoordinator, Work], tasks: Sequence[str] = TASKS) -> None:
    def are_shared() -> bool:
        shares = [one.doing for one, _ in workers]
        is_complete = sorted(task for share in shares for task in share) == sorted(tasks)
        are_even = max(map(len, shares)) - min(map(len, shares)) <= 1
        return is_complete and are_even and all(one.is_valid() for one, _ in workers)

    eventually(are_shared, within=20, what="all tasks are shared evenly")


def test_tasks_move_only_as_far_as_they_must(client: PluginLocator, start: Start) -> None:
    first = start(client, "http://1")
    await_tasks(first)
    second = start(client, "http://2")
    await_tasks(first, second)
    assert [name for name, _ in first[1].calls] == ["started", "stopped"]
    assert len(first[1].calls[1][1]) == 3
    assert [name for name, _ in second[1].calls] == ["started"]


def test_work_of_a_worker_that_is_gone_waits_for_it(open_client: OpenClient, start: Start) -> None:
    delay = {"max_delay_seconds": 1.5}
    first = start(open_client(), "http://1", **delay)
    await_tasks(first)
    second = start(open_client(), "http://2", config={"eligible": False}, **delay)
    await_tasks(first, second)
    share = second[0].doing
    begun = time.monotonic()
    second[0].close()
    throughout(lambda: len(first[0].doing) == 3, seconds=0.5)
    again = start(open_client(), "http://2", config={"eligible": False}, **delay)
    await_tasks(first, again)
    assert again[0].doing == share
    again[0].close()
    await_tasks(first)
    assert time.monotonic() - begun > 1.5


def test_a_change_of_tasks_is_noticed_by_the_leader(client: PluginLocator, start: Start) -> None:
    tasks = list(TASKS)
    first = start(client, "http://1", lambda: list(tasks), refresh_seconds=0.1)
    await_tasks(first)
    tasks[0] = "another"
    await_tasks(first, tasks=tasks)
    assert first[1].calls[1:] == [("stopped", ["task-0"]), ("started", ["another"])]


# -- one elected member


Elected = tuple[LeaderCoordinator, list[tuple[MemberIdentity | None, int]]]


@pytest.fixture
def elect(ends: ExitStack) -> Callable[..., Elected]:
    def start_one(
        client: PluginLocator,
        url: str,
        *,
        eligible: bool = True,
        starts: bool = True,
        instance: str | None = None,
        **more: Any,
    ) -> Elected:
        heard: list[tuple[MemberIdentity | None, int]] = []
        one = LeaderCoordinator(
            client,
            "g",
            identity=MemberIdentity(url, eligible),
            on_elected=lambda identity, generation: heard.append((identity, generation)),
            config=quick_config(client, group_instance_id=instance, static_grace_seconds=60),
            **more,
        )
        ends.callback(one.close)
        if starts:
            one.start()
        return one, heard

    return start_one


def await_elected(url: str, *members: Elected) -> None:
    def is_elected() -> bool:
        agree = all(heard and heard[-1][0] == MemberIdentity(url) for _, heard in members)
        elected = [one.identity.url for one, _ in members if one.is_elected]
        return agree and elected == [url]

    eventually(is_elected, within=20, what=f"{url} is elected")


def test_the_elected_member_stays_while_it_is_there(
    open_client: OpenClient, elect: Callable[..., Elected]
) -> None:
    second = elect(open_client(), "b")
    await_elected("b", second)
    first = elect(open_client(), "a")
    await_elected("b", first, second)
    assert [identity for identity, _ in second[1]] == [MemberIdentity("b")]
    second[0].close()
    await_elected("a", first)
    assert second[1][-1] == (None, -1)


def test_the_least_url_is_elected_if_the_group_is_not_sticky(
    open_client: OpenClient, elect: Callable[..., Elected]
) -> None:
    second = elect(open_client(), "b", sticky=False)
    await_elected("b", second)
    first = elect(open_client(), "a", sticky=False)
    await_elected("a", first, second)
    assert [identity for identity, _ in second[1]] == [
        MemberIdentity("b"),
        None,
        MemberIdentity("a"),
    ]


def test_a_member_that_may_not_be_elected_chooses_another(
    open_client: OpenClient, elect: Callable[..., Elected]
) -> None:
    chooser = elect(open_client(), "a", eligible=False)
    eventually(lambda: chooser[0].generation.generation == 1, within=20, what="a generation")
    assert chooser[1] == []
    assert not chooser[0].is_elected
    other = elect(open_client(), "b")
    await_elected("b", other, chooser)


def test_members_with_the_same_url_are_an_error_until_one_of_them_leaves(
    open_client: OpenClient, elect: Callable[..., Elected]
) -> None:
    twins = [elect(open_client(), "a", starts=False)[0] for _ in range(2)]
    errors: list[tuple[str, str]] = []

    def poll() -> bool:
        for one in twins:
            try:
                one.poll(0.02)
            except UsageError as error:
                errors.append((one.member_id, str(error)))
        return True

    both = {one.member_id for one in twins}
    eventually(lambda: poll() and {name for name, _ in errors} == both, within=20, what="errors")
    eventually(lambda: poll() and all(map(is_stable, twins)), within=20, what="both are members")
    assert all("has the url 'a', too" in text for _, text in errors)
    assert not any(one.is_elected or one.failure for one in twins)
    errors.clear()
    third = elect(open_client(), "b")[0]
    eventually(lambda: poll() and third.is_elected, within=20, what="the third is elected")
    eventually(lambda: poll() and {name for name, _ in errors} == both, within=20, what="errors")
    twins.pop().close()
    third.close()
    eventually(lambda: poll() and twins[0].is_elected, within=20, what="the other is elected")


@pytest.mark.case("K38")
def test_an_elected_static_member_that_returns_is_elected_still(
    open_client: OpenClient, elect: Callable[..., Elected]
) -> None:
    first = elect(open_client(), "z", instance="k")
    await_elected("z", first)
    other = elect(open_client(), "b")
    await_elected("z", first, other)
    number, heard = other[0].generation.generation, [*other[1]]
    first[0].close()
    again = elect(open_client(), "z", instance="k")
    await_elected("z", again, other)
    assert again[1] == [(MemberIdentity("z"), number)]
    assert (other[0].generation.generation, other[1]) == (number, heard)
    newcomer = elect(open_client(), "a")
    await_elected("z", again, other, newcomer)
    assert again[1] == [(MemberIdentity("z"), number)]


def is_stable(one: LeaderCoordinator) -> bool:
    return one.state is MemberState.STABLE


def test_a_listener_that_raises_is_notified_of_the_election_again(
    client: PluginLocator, ends: ExitStack
) -> None:
    heard: list[tuple[MemberIdentity | None, int]] = []

    def on_elected(identity: MemberIdentity | None, generation: int) -> None:
        heard.append((identity, generation))
        if len(heard) < 3:
            raise BrokenError

    one = LeaderCoordinator(
        client,
        "g",
        identity=MemberIdentity("a"),
        on_elected=on_elected,
        config=quick_config(client),
    )
    ends.callback(one.close)
    for _ in range(2):
        with pytest.raises(BrokenError):
            one.ensure_active_group(20)
        assert not one.is_elected
    assert one.ensure_active_group(20)
    assert one.is_elected
    one.close()
    assert heard == [(MemberIdentity("a"), 1)] * 3 + [(None, -1)]
