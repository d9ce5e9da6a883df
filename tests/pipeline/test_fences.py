"""Jobs that write, and whose driver another one replaces before their tasks begin."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kip30 import PluginLocator
from kip30.driver.records import Fence
from kip30.pipeline.compare import diff, repair
from kip30.pipeline.follow import feed
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint
from kip30.pipeline.transfer import restore_and_migrate
from kip30.pipeline.write.run_leader import RunLeader

from .stores import Stores, contents, fill, stores_in

VALUES = {f"n/k{number:02}": b"%d" % number for number in range(20)}
Job = Callable[[SparkSession, Path, Path, Path], Report]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


def fed(spark: SparkSession, source: Path, target: Path, out: Path) -> Report:
    return feed.run(spark, feed.FeedOptions(**_ends(source, target), out=out, once=True))


def migrated(spark: SparkSession, source: Path, target: Path, out: Path) -> Report:
    return restore_and_migrate.run(
        spark, restore_and_migrate.RestoreOptions(**_ends(source, target), out=out)
    )


def repaired(spark: SparkSession, source: Path, target: Path, out: Path) -> Report:
    compared = out.with_name("diff")
    sides = parse_endpoint(str(source)), parse_endpoint(str(target))
    diff.run(spark, diff.DiffOptions(left=sides[0], right=sides[1], out=compared))
    return repair.run(spark, repair.RepairOptions(diff=compared, out=out, apply=True))


def _ends(source: Path, target: Path) -> dict[str, Any]:
    ends = {"source": source, "target": target}
    return {name: store_endpoint(parse_endpoint(str(file))) for name, file in ends.items()}


@pytest.mark.case("P08")
@pytest.mark.parametrize("job", [fed, migrated, repaired])
def test_tasks_of_a_former_driver_write_nothing(
    spark: SparkSession, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    source = stores.config("embedded", f"from-{job.__name__}")
    target = stores.config("embedded", f"to-{job.__name__}")
    fill(source, VALUES)
    fill(target, {})
    replaced_at_its_fence(target, monkeypatch)
    report = job(spark, source, target, tmp_path / "run")
    assert contents(target, list(VALUES)) == {}
    assert report.ending is JobEnding.INCOMPLETE
    assert report.reason


def replaced_at_its_fence(target: Path, patch: pytest.MonkeyPatch) -> None:
    """Let another driver take over as soon as the next one has its fence."""
    fence = RunLeader.fence

    def late(self: RunLeader, *, timeout_seconds: float | None = None) -> Fence:
        found = fence(self, timeout_seconds=timeout_seconds)
        patch.setattr(RunLeader, "fence", fence)
        self.close()
        self._patience = 0.1
        with PluginLocator().startup(target) as client, RunLeader(client, self._run) as successor:
            assert successor.fence().epoch > found.epoch
        return found

    patch.setattr(RunLeader, "fence", late)


@pytest.mark.case("P08")
@pytest.mark.parametrize("job", [fed, migrated, repaired])
def test_a_driver_whose_session_is_lost_is_elected_again_and_goes_on(
    spark: SparkSession, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    source = stores.config("embedded", f"lost-from-{job.__name__}")
    target = stores.config("embedded", f"lost-to-{job.__name__}")
    fill(source, VALUES)
    fill(target, {})
    epochs: list[int] = []
    fence = RunLeader.fence

    def lost(self: RunLeader, *, timeout_seconds: float | None = None) -> Fence:
        found = fence(self, timeout_seconds=timeout_seconds)
        if not epochs:
            resources: Any = self._election._store.backend
            resources._resources.sessions.expire()
        epochs.append(found.epoch)
        return found

    monkeypatch.setattr(RunLeader, "fence", lost)
    report = job(spark, source, target, tmp_path / "run")
    if report.ending is JobEnding.INCOMPLETE:  # a feed that is called once applies a batch once
        assert job is fed
        options = feed.FeedOptions(**_ends(source, target), out=tmp_path / "run", once=True)
        report = feed.run(spark, replace(options, resume=True))
    assert report.ending is JobEnding.DONE
    assert contents(target, list(VALUES)) == VALUES
