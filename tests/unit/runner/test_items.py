"""Commands for single items: each has its own guard, and none is disturbed by another's end."""

import os
import resource
import signal
from collections.abc import Callable, Generator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from typing_extensions import override

from kip30.runner import WAITED_STATUS, HeldItem, ItemWorkshare, ShareJob, item_runner
from kip30.runner.interrupts import Interrupts
from kip30.runner.orphans import OrphanReaper
from kip30.runner.spare_guard import SpareGuard
from kip30_conformance.polling import time_scale

from .field import TIMEOUT, Started, children, eventually, is_running, parent, spare_of
from .share_field import NO_LOOK, ShareField
from .tiny_share_runner import FileItem, Given

SH = ("sh", "-c")
CLEANING = round(300_000 * time_scale())  # microseconds
LONG = 100 * TIMEOUT * time_scale()
COUNT = 'echo "$KIP30_GENERATION $$ $(date +%s.%N) $KIP30_ITEM" >> "$KIP30_TEST_LOG"; exit 3'
SHOW = """
echo "$KIP30_ITEM,$KIP30_GROUP,$KIP30_MEMBER,$KIP30_GENERATION,$KIP30_GUARD"
echo "$1,$2,$0,${KIP30_SHARE-none},${KIP30_SHARE_FILE-none},${KIP30_EPOCH-none}"
"""


@pytest.fixture
def field(tmp_path: Path) -> Generator[ShareField]:
    field = ShareField(tmp_path)
    yield field
    field.close()


def start(
    field: ShareField, *command: object, options: tuple[str, ...] = (), timeout: float = LONG
) -> Started:
    """Start a runner whose shares last long, so that a busy machine loses none."""
    return field.start(*command, options=("--each", *options), timeout=timeout)


def only(pids: set[int]) -> int:
    (pid,) = pids
    return pid


def await_given_up(field: ShareField, item: str, generation: int) -> float:
    return field.await_event(f"gave-up-{item}-{generation}")


def has_done(field: ShareField, wanted: int) -> bool:
    return len(field.work()) >= wanted


def await_more_work(field: ShareField) -> None:
    eventually(partial(has_done, field, len(field.work()) + 50))


@pytest.mark.parametrize("item", ["a", "b c", "{}", "{}{}", "ü", "d\udcff", "'\"$(:)\\"], ids=ascii)
def test_a_command_finds_its_item_in_arguments_and_environment(
    field: ShareField, monkeypatch: pytest.MonkeyPatch, item: str
) -> None:
    monkeypatch.delenv("KIP30_EPOCH", raising=False)
    monkeypatch.setenv("KIP30_SHARE", "of an outer runner")
    field.give_each(**{"first": 7, item: 8})
    script = f'({SHOW}) > "$KIP30_TEST_EVENTS.$KIP30_GENERATION"'
    runner = start(field, *SH, script, "{", "{}", "-{}={}")
    runner.await_line("ended with status 0")
    runner.await_line("ended with status 0")
    written = Path(f"{field.events_file}.8").read_bytes()
    lines = [os.fsdecode(line) for line in written.splitlines()]
    assert lines == [
        f"{item},a group,the member,8,a=20group:the=3Akey:the=20member:8:1",
        f"{item},-{item}={item},{{,none,none,none",
    ]


def test_the_program_is_no_argument(field: ShareField) -> None:
    program = field.folder / "{}"
    program.write_text(f"#!/bin/sh\n{COUNT}")
    program.chmod(0o755)
    field.give_each(a=1)
    start(field, program)
    field.await_item("a", 1)


@pytest.mark.parametrize("item", ["", "a\nb", "a\0b"], ids=ascii)
def test_an_item_that_is_no_line_is_refused(field: ShareField, item: str) -> None:
    field.give_each(**{"b": 1, item: 1})
    output = start(field, field.worker).output()
    assert "an item must be one line" in output[1]
    assert field.times("left")
    assert not any(is_running(work.pid) for work in field.work())


def test_only_the_command_of_an_item_that_moves_ends(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    runner = start(field, field.worker, "slow", CLEANING)
    stays, moves = field.await_item("a", 1), field.await_item("b", 1)
    field.give_each(a=1, c=2)
    steps = [field.await_event("asked"), field.await_event("clean"), await_given_up(field, "b", 1)]
    assert steps == sorted(steps)
    assert not is_running(only(moves))
    field.await_item("c", 2)
    await_more_work(field)
    assert field.await_item("a", 1) == stays
    assert is_running(only(stays))
    assert is_running(runner.pid)
    assert not field.times("gave-up-a-1")


def test_an_item_that_comes_back_starts_after_its_former_command_is_gone(
    field: ShareField,
) -> None:
    field.give_each(a=1, b=1)
    start(field, field.worker, "tree", options=("--grace=0.2",))
    former = field.await_item("a", 1, pids=4)
    field.give_each(a=2, b=1)
    given_up = await_given_up(field, "a", 1)
    assert not any(is_running(pid) for pid in former)
    field.await_item("a", 2, pids=4)
    work = [one for one in field.work() if one.item == "a"]
    last = max(one.time for one in work if one.generation == 1)
    assert last < given_up < min(one.time for one in work if one.generation == 2)


def test_an_item_that_is_wanted_back_is_given_up_by_notice(field: ShareField) -> None:
    field.give_each(a=1)
    start(field, options=("--look=3600",), timeout=NO_LOOK)
    field.await_work(1)
    field.give_each(a=2)
    field.await_work(2)


def test_a_lost_item_s_command_ends_without_any_grace_and_no_other_one(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    runner = start(field, field.worker, "slow", 100 * CLEANING)
    lost, stays = field.await_item("a", 1), field.await_item("b", 1)
    field.give_each("a", a=1, b=1)
    runner.await_line("item a: the share was lost")
    assert not is_running(only(lost))
    await_given_up(field, "a", 1)
    await_more_work(field)
    assert is_running(only(stays))
    assert not field.times("asked")


def test_items_that_are_not_renewed_end_in_time(field: ShareField) -> None:
    field.give_each(a=1, b=1, renewed=False)
    start(field, field.worker, "tree", timeout=TIMEOUT * time_scale())
    for item in "ab":
        field.await_item(item, 1)
        await_given_up(field, item, 1)
        times = [work.time for work in field.work() if work.item == item]
        assert max(times) < min(times) + TIMEOUT * time_scale()


def test_an_item_is_done_when_its_command_has_ended_and_stays(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    runner = start(field, *SH, COUNT)
    runner.await_line("ended with status 3")
    runner.await_line("ended with status 3")
    field.give_each(a=1, b=1, c=2)
    field.await_item("c", 2)
    runner.await_line("item c: ended with status 3")
    assert sorted(work.item for work in field.work()) == ["a", "b", "c"]
    field.give_each(b=1, c=3)
    await_given_up(field, "a", 1)
    await_given_up(field, "c", 2)
    field.await_item("c", 3)
    assert not field.times("gave-up-b-1")
    assert is_running(runner.pid)


def await_pause(runner: Started, item: str, seconds: int) -> None:
    """Read up to the pause of *item*. The lease may have ended its command on a busy machine."""
    begin, end = f"item {item}: ", f"running the command again in {seconds} s\n"
    lines = runner.process.stderr
    assert lines is not None
    assert any(line.startswith(begin) and line.endswith(end) for line in lines)


def test_each_command_is_run_again_after_its_own_growing_pauses(field: ShareField) -> None:
    field.give_each(a=1)
    runner = start(field, *SH, COUNT, options=("--restart",))
    await_pause(runner, "a", 2)
    field.give_each(a=1, b=1)
    await_pause(runner, "b", 1)
    await_pause(runner, "a", 4)
    times = [work.time for work in field.work() if work.item == "a"]
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert len(pauses) >= 2
    assert all(pause >= least for pause, least in zip(pauses, (1, 2), strict=False))


def test_an_item_is_given_up_in_the_pause(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    runner = start(field, *SH, COUNT, options=("--restart",))
    runner.await_line("again in 4 s")
    field.give_each(b=1)
    await_given_up(field, "a", 1)
    assert not field.times("gave-up-b-1")


def test_a_killed_guard_ends_its_own_item_s_command_alone(field: ShareField) -> None:
    field.give_each(a=1, b=1, c=1)
    runner = start(field, field.worker, "tree")
    pids = {item: field.await_item(item, 1, pids=4) for item in "abc"}
    command = next(pid for pid in pids["b"] if parent(parent(pid)) == runner.pid)
    os.kill(parent(command), signal.SIGKILL)
    runner.await_line("item b: the command was killed with its guard")
    assert not any(is_running(pid) for pid in pids["b"])
    field.await_item("b", 1, pids=8)
    await_more_work(field)
    for item in "ac":
        assert field.await_item(item, 1) == pids[item]
        assert all(is_running(pid) for pid in pids[item])
    assert not field.times("gave-up-b-1")


def test_an_item_that_is_not_renewed_has_no_killed_guard(field: ShareField) -> None:
    field.give_each(a=1)
    runner = start(field, timeout=TIMEOUT * time_scale())
    field.await_item("a", 1)
    field.give_each(a=1, renewed=0)
    assert runner.process.stderr
    line = next(one for one in runner.process.stderr if one.startswith("item a: "))
    assert "the lease was not renewed in time" in line or "the share was lost" in line


def test_the_next_command_has_the_guard_that_was_spare(field: ShareField) -> None:
    field.give_each(a=1)
    runner = start(field)
    killed = only(field.await_item("a", 1))
    guard = parent(killed)
    spare = spare_of(runner, guard)
    os.kill(guard, signal.SIGKILL)  # the rest of its command is killed, the spare guard is not
    again = only(field.await_item("a", 1, pids=2) - {killed})
    assert parent(again) == spare


def test_all_guards_killed_at_once_restart_all(field: ShareField) -> None:
    field.give_each(a=1, b=1, c=1)
    runner = start(field, field.worker)
    pids = {item: only(field.await_item(item, 1)) for item in "abc"}
    for guard in [parent(pid) for pid in pids.values()]:
        os.kill(guard, signal.SIGKILL)
    for item in "abc":
        field.await_item(item, 1, pids=2)
    assert not any(is_running(pid) for pid in pids.values())
    assert is_running(runner.pid)


def test_a_killed_runner_s_commands_are_gone(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    runner = start(field, field.worker, "tree")
    pids = field.await_item("a", 1, pids=4) | field.await_item("b", 1, pids=4)
    runner.send(signal.SIGKILL)
    eventually(lambda: not any(is_running(pid) for pid in pids))


def test_further_items_wait_in_the_order_of_the_list(field: ShareField) -> None:
    field.give_each(d=1, a=1, c=1, b=1, e=1)
    runner = start(field, field.worker, options=("--most=2",))
    runner.await_line("items that wait: 3; at most 2")
    field.await_item("d", 1)
    field.await_item("a", 1)
    field.give_each(a=1, c=1, b=1, e=1)
    field.await_item("c", 1)
    runner.await_line("items that wait: 2; at most 2")
    field.give_each(a=1, c=1, e=1)  # it has not begun
    runner.await_line("items that wait: 1; at most 2")
    field.give_each(e=1)
    field.await_item("e", 1)
    assert {work.item for work in field.work()} == set("dace")
    assert not field.times("gave-up-b-1")


def test_a_thousand_items_all_run_few_at_a_time(field: ShareField) -> None:
    names = [f"i{number}" for number in range(1000)]
    field.give_each(**dict.fromkeys(names[:30], 1), **dict.fromkeys(names[30:], 2))
    script = 'test "$KIP30_GENERATION" = 2 && exec sleep 600; exit 0'
    runner = start(field, *SH, script, options=("--most=8",))
    for _ in range(30):
        runner.await_line("ended with status 0")
    runner.await_line("items that wait: 962;")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM


def test_an_item_that_is_wanted_back_while_its_guard_starts_runs_nothing_later(
    field: ShareField,
) -> None:
    names = [f"i{number}" for number in range(12)]
    field.give_each(**dict.fromkeys(names, 1))
    runner = start(field)
    runner.await_line("working on item")
    field.give_each(last=2)
    pids = field.await_item("last", 2)
    # Beside its guard there is at most the spare one.
    eventually(lambda: parent(only(pids)) in children(runner.pid))
    eventually(lambda: len(children(runner.pid)) <= 2)
    await_more_work(field)
    assert {work.item for work in field.work()[-40:]} == {"last"}


@pytest.mark.parametrize("restart", [(), ("--restart",)], ids=["once", "restart"])
def test_a_signal_is_passed_on_to_all_commands(field: ShareField, restart: tuple[str, ...]) -> None:
    field.give_each(a=1, b=1, c=1)
    runner = start(field, field.worker, "slow", CLEANING, options=("--most=2", *restart))
    field.await_item("a", 1)
    field.await_item("b", 1)
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert len(field.times("clean")) == 2
    assert {work.item for work in field.work()} == {"a", "b"}
    assert max(field.times("clean")) < field.await_event("left")
    assert len(field.times("gave-up-a-1")) == len(field.times("gave-up-b-1")) == 1


def test_a_second_signal_kills_all_commands(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    runner = start(field, field.worker, "slow", 100 * CLEANING)
    pids = field.await_item("a", 1) | field.await_item("b", 1)
    runner.send(signal.SIGTERM)
    field.await_event("asked")
    runner.send(signal.SIGINT)
    assert runner.wait() == 128 + signal.SIGTERM
    assert not any(is_running(pid) for pid in pids)
    assert not field.times("clean")


def test_a_signal_in_the_pause_ends_the_run(field: ShareField) -> None:
    field.give_each(a=1)
    runner = start(field, *SH, COUNT, options=("--restart",))
    runner.await_line("again in 4 s")
    runner.send(signal.SIGTERM)
    assert runner.wait() == 128 + signal.SIGTERM
    assert field.times("gave-up-a-1") < field.times("left")


def test_the_wait_for_items_is_bounded(field: ShareField) -> None:
    assert start(field, options=("--wait=0.2",)).wait() == WAITED_STATUS
    assert field.times("left")


def test_an_outage_is_reported_and_ends_no_command(field: ShareField) -> None:
    field.give_each(down=True)
    runner = start(field)
    runner.await_line("waiting for the store: it is down")
    field.give_each(a=1)
    pids = field.await_item("a", 1)
    field.give_each(a=1, down=True)
    await_more_work(field)
    assert field.await_item("a", 1) == pids


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("/", 126)])
def test_a_program_that_cannot_be_executed_takes_no_item(
    field: ShareField, program: str, status: int
) -> None:
    field.give_each(a=1)
    assert start(field, program).wait() == status
    assert not field.times("gave-up-a-1")


def test_a_program_that_is_gone_ends_the_run_and_lets_commands_end(field: ShareField) -> None:
    field.give_each(a=1)
    program = field.folder / "program"
    program.symlink_to(field.worker)
    runner = start(field, program, "slow", CLEANING)
    field.await_item("a", 1)
    program.unlink()
    field.give_each(a=1, b=1)
    assert runner.wait() == 127
    assert field.await_event("clean") < field.await_event("left")
    assert {work.item for work in field.work()} == {"a"}


def test_a_guard_that_cannot_be_started_for_want_of_descriptors_is_retried(
    field: ShareField,
) -> None:
    field.give_each(a=1)
    runner = start(field)
    pids = field.await_item("a", 1)
    eventually(lambda: len(children(runner.pid)) == 2)  # the spare guard is there
    before = resource.prlimit(runner.pid, resource.RLIMIT_NOFILE)
    held = [int(file.name) for file in Path(f"/proc/{runner.pid}/fd").iterdir()]
    resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, (max(held) + 2, before[1]))
    field.give_each(a=1, b=1, c=1)
    runner.await_line(": no guard: Too many open files: retry in 1 s")
    resource.prlimit(runner.pid, resource.RLIMIT_NOFILE, before)
    field.await_item("b", 1)
    field.await_item("c", 1)
    assert field.await_item("a", 1) == pids
    assert not field.times("gave-up-a-1")


def test_a_signal_that_asks_for_no_end_reaches_all_commands(field: ShareField) -> None:
    field.give_each(a=1, b=1)
    script = "trap 'echo told {}; exit' USR1; echo up {}; while :; do sleep 0.01; done"
    runner = start(field, *SH, script)
    assert runner.process.stdout
    lines = iter(runner.process.stdout.readline, "")
    assert {next(lines), next(lines)} == {"up a\n", "up b\n"}
    runner.send(signal.SIGUSR1)
    assert {next(lines), next(lines)} == {"told a\n", "told b\n"}


class ManyItems(ItemWorkshare):
    """Items that are all the runner's, and those that it has given up."""

    def __init__(self) -> None:
        self.given_up = list[HeldItem]()

    @override
    def wait(self, timeout: float) -> None:
        return None

    @override
    def ready(self) -> int:
        return 0

    @override
    def has_tried(self) -> bool:
        return True

    @override
    def call_on_end(self, notify: Callable[[], None]) -> None:
        pass

    @override
    def share_fd(self) -> None:
        return None

    @override
    def give_up(self, share: HeldItem) -> None:
        self.given_up.append(share)

    @override
    def leave(self) -> None:
        pass


def test_the_guards_are_informed_between_many_items_that_are_given_up() -> None:
    names = [str(number) for number in range(2 * item_runner._MOST_GIVEN_UP)]
    given = Given(each=dict.fromkeys(names, 1))
    job, workshare = ShareJob(group="g", command=["true"]), ManyItems()
    with Interrupts() as interrupts, OrphanReaper() as orphans, SpareGuard(()) as spare:
        runner = item_runner._ItemRunner(
            workshare, job, 1, say=print, interrupts=interrupts, orphans=orphans, spare=spare
        )
        items = [FileItem(name, given, LONG, print) for name in names]
        for one in items:
            runner._take(one)
            one.wanted_back.set()
        runner._look()
        assert len(workshare.given_up) == item_runner._MOST_GIVEN_UP
        runner._look()  # which is due at once
    assert workshare.given_up == items
