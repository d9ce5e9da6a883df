"""Metrics of a whole store, from an overview, for stores whose programs export none."""

from collections.abc import Iterator, Mapping

from kip30.metrics.definitions import (
    HAS_LEADER,
    LEADER_EPOCH,
    MEMBERS,
    PAUSED,
    STORE_LAST_SEEN,
    UNREADABLE_RECORDS,
)
from kip30.metrics.instruments import Definition, LabelValues, MetricFamily
from kip30.metrics.registry import STORE
from kip30.metrics.text_format import rendered
from kip30.serving.live_overview import OverviewRecord

WAITING = Definition(
    "kip30_waiting_candidates", "gauge", "Candidates in the line of the service.", ("service",)
)
SEEN_HAS_LEADER = HAS_LEADER._replace(about="Whether the service has a leader.")
SEEN_PAUSED = PAUSED._replace(about="Whether an operator has paused the service.")
SEEN_EPOCH = LEADER_EPOCH._replace(about="Epoch of the newest term of the service.")
SEEN_MEMBERS = MEMBERS._replace(about="Members of a group.")
SEEN_UNREADABLE = UNREADABLE_RECORDS._replace(about="Records that this kip30 cannot read.")
LAST_READ = STORE_LAST_SEEN._replace(about="Time of the last overview, since the epoch of Unix.")

_Samples = Mapping[LabelValues, float | None]


def metrics_of(record: OverviewRecord) -> str:
    """Return the metrics of *record* in the text format of Prometheus.

    While the store cannot be read there is only the time of the last overview.
    """
    return rendered(_families(record))


def _families(record: OverviewRecord) -> Iterator[MetricFamily]:
    store, services = record["store"], record["services"]

    def family(definition: Definition, values: _Samples) -> MetricFamily:
        samples = {(store, *labels): value for labels, value in values.items() if value is not None}
        return MetricFamily(definition, (STORE, *definition.labels), samples)

    yield family(LAST_READ, {(): record["at"]})
    if record["error"] is not None:
        return
    is_led: _Samples = {
        (one,): int(fields["leader"] is not None or not fields["readable"])
        for one, fields in services.items()
    }
    is_paused: _Samples = {
        (one,): int(fields["pause"] is not None) for one, fields in services.items()
    }
    yield family(SEEN_HAS_LEADER, is_led)
    yield family(SEEN_EPOCH, {(one,): fields["epoch"] for one, fields in services.items()})
    yield family(SEEN_PAUSED, is_paused)
    yield family(WAITING, {(one,): fields["waiting"] for one, fields in services.items()})
    yield family(
        SEEN_MEMBERS,
        {(one,): fields["members"] for one, fields in record["groups"].items()},
    )
    yield family(SEEN_UNREADABLE, {(): record["unreadable"]})
