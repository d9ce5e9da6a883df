"""The exporters with the real libraries of others, which the environments of tox have."""

import math
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kip30 import KeyExistsError, PluginLocator
from kip30.driver.records import new_nonce
from kip30.metrics import CONTENT_TYPE, collector, observe, text
from kip30.metrics.instruments import BOUNDS
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.clients.metric_samples import Labels, Samples, parsed
from kip30_conformance.polling import eventually
from tests.snippets import snippets

from .conftest import OpenClient

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
HOSTILE = 'a"b\\c\nd\te\u202e'
MOVING = re.compile("lease_remaining|last_seen|lease.remaining|last.seen")


def library(name: str) -> Any:
    """Return the module *name*; under tox it must be installed."""
    return import_module(name) if "TOX_ENV_NAME" in os.environ else pytest.importorskip(name)


@pytest.fixture
def metered(open_client: OpenClient) -> PluginLocator:
    return open_client(**{"plugin.metrics": True})


def use(client: PluginLocator) -> None:
    """Leave a sample in most families."""
    election, group = client.leader_election(HOSTILE), client.group_membership(HOSTILE)
    for _ in range(2):
        election.nominate("c", "")
        election.resign("c")
    group.add_listener(lambda _: None)
    group.join(new_nonce(), "")
    for number in range(20):
        with suppress(KeyExistsError):
            client.storage().put(f"n/{number}", "v")


def numbers(found: dict[str, Samples]) -> dict[str, dict[Labels, float]]:
    """Return the value of each series, without those that move with the clock."""
    return {
        name: dict(series)
        for family in found.values()
        for name, series in family.values.items()
        if not MOVING.search(name) and series
    }


def agree(compare: Callable[[], None]) -> None:
    """Compare until the two agree: a renewal may be answered between two readings."""

    def agrees() -> bool:
        with suppress(AssertionError):
            compare()
            return True
        return False

    try:
        eventually(agrees)
    except AssertionError:
        compare()  # it shows the difference


def test_prometheus_client_parses_the_text(metered: PluginLocator) -> None:
    parser = library("prometheus_client.parser")
    use(metered)
    shown = metered.metrics().text()
    theirs: dict[str, dict[Labels, float]] = {}
    for family in parser.text_string_to_metric_families(shown):
        assert family.documentation
        for sample in family.samples:
            theirs.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    ours = numbers(parsed(shown))
    assert {name: theirs[name] for name in ours} == ours
    assert len(theirs) >= len(ours) > 12


def test_prometheus_client_exports_the_same(open_client: OpenClient) -> None:
    client_library = library("prometheus_client")
    clients = [open_client(**{"plugin.metrics": True}) for _ in range(2)]
    for client in clients:
        use(client)
    registry = client_library.CollectorRegistry()
    registry.register(collector(*(client.metrics() for client in clients)))

    def compare() -> None:
        exported = parsed(client_library.generate_latest(registry).decode())
        together = parsed(text(*(client.metrics() for client in clients)))
        assert numbers(exported) == numbers(together)
        assert exported["kip30_operation_duration_seconds"].value("_count", operation="put") == 40

    agree(compare)
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(collector(clients[1].metrics()))


def test_a_forked_child_collects_nothing(metered: PluginLocator) -> None:
    client_library = library("prometheus_client")
    use(metered)
    registry = client_library.CollectorRegistry()
    registry.register(collector(metered.metrics()))

    def samples() -> list[str]:
        lines = client_library.generate_latest(registry).decode().splitlines()
        return [line for line in lines if not line.startswith("#")]

    assert len(samples()) > 12
    assert in_forked_child(samples) == "[]"


@pytest.fixture
def meter() -> Iterator[tuple[Any, Callable[[], dict[str, Any]]]]:
    """Yield a meter of OpenTelemetry's SDK, and a function that returns its metrics by name."""
    sdk = library("opentelemetry.sdk.metrics")
    reader = library("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
    provider = sdk.MeterProvider(metric_readers=[reader])

    def collected() -> dict[str, Any]:
        data = reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    yield provider.get_meter("test"), collected
    provider.shutdown()


def test_opentelemetry_observes_the_same(
    metered: PluginLocator, meter: tuple[Any, Callable[[], dict[str, Any]]]
) -> None:
    real, collected = meter
    observe(real, metered.metrics())
    use(metered)
    agree(lambda: _compare(collected(), parsed(metered.metrics().text())))


def _compare(theirs: dict[str, Any], ours: dict[str, Samples]) -> None:
    compared = 0
    for name, family in ours.items():
        own = name.removesuffix("_total").removesuffix("_seconds").replace("_", ".")
        counts = family.values[f"{name}_count" if family.kind == "histogram" else name]
        wanted = {labels: count for labels, count in counts.items() if count or own not in theirs}
        if not wanted or MOVING.search(name):
            continue
        # A callback that ended between the two is in ours alone: look again.
        assert own in theirs
        assert theirs[own].description == family.about
        assert theirs[own].unit == ("s" if name.endswith("_seconds") else "")
        points = {frozenset(one.attributes.items()): one for one in theirs[own].data.data_points}
        if family.kind == "histogram":
            assert {labels: point.count for labels, point in points.items()} == wanted
            for labels, point in points.items():
                _compare_buckets(point, family, dict(labels))
        else:
            shown = {labels: point.value for labels, point in points.items()}
            assert shown == dict(counts)
        compared += 1
    assert compared > 7


def _compare_buckets(point: Any, family: Samples, labels: dict[str, str]) -> None:
    """Compare a histogram's buckets, which the API was advised of."""
    assert tuple(point.explicit_bounds) == BOUNDS
    assert point.sum == pytest.approx(family.value("_sum", **labels), rel=1e-9)
    total = 0
    for bound, count in zip((*BOUNDS, math.inf), point.bucket_counts, strict=True):
        total += count
        shown = "+Inf" if bound == math.inf else repr(bound)
        assert family.value("_bucket", le=shown, **labels) == total


def test_a_closed_locator_is_observed_no_longer(
    metered: PluginLocator, meter: tuple[Any, Callable[[], dict[str, Any]]]
) -> None:
    real, collected = meter
    observe(real, metered.metrics())
    use(metered)
    metered.close()
    assert "kip30.build.info" not in collected()
    (point, *_) = collected()["kip30.terms"].data.data_points
    assert point.value == 2


def _program(of: str) -> str:
    (found,) = [one.text for one in snippets(DOCUMENT) if of in one.text]
    return found


@pytest.mark.parametrize("name", ["prometheus_client", "opentelemetry"])
def test_the_programs_of_the_document_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = library(name)
    config = tmp_path / "kip30.properties"
    config.write_text(
        "plugin.backend = embedded\nplugin.embedded.directory = state\nplugin.metrics = true\n"
    )
    monkeypatch.setenv("KIP30_CONFIG", str(config))
    program = _program(f"import {name}" if name == "prometheus_client" else f"from {name}")
    found: dict[str, Any] = {}
    if name == "prometheus_client":
        registry, started = module.CollectorRegistry(), module.start_http_server

        def start(_port: int, address: str) -> None:
            found["server"], found["thread"] = started(0, address, registry=registry)

        monkeypatch.setattr(module, "REGISTRY", registry)
        monkeypatch.setattr(module, "start_http_server", start)
    exec(program, found)  # noqa: S102  a page of kip30's own
    locator: PluginLocator = found["locator"]
    try:
        locator.storage().put("n/k", "v")
        if "server" in found:
            port = found["server"].server_port
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=")
                shown = parsed(answer.read().decode())
            assert numbers(shown) == numbers(parsed(locator.metrics().text()))
            found["server"].shutdown()
            found["server"].server_close()
            found["thread"].join()
    finally:
        locator.close()
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
