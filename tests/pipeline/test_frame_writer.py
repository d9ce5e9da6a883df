"""``df.write.format("kip30")``: rows that are written, rows that are named, and repetitions."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kip30 import UsageError
from kip30.pipeline import dataframes
from kip30.pipeline.run.report import MOST_FINDINGS
from kip30.pipeline.spark.bulk_write import Decided
from kip30.pipeline.spark.frame_writer import WriteOptions, WriteResult, check_columns

from .conftest import Target
from .store import write_properties
from .stores import contents, fill

VALUES = {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(100)}
BATCH_ROWS = 10
_ROWS_OF_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_COLUMNS = "key string, value binary"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the properties file of an embedded store that is not there yet."""
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / "store"}
    return write_properties(tmp_path / "store.properties", settings)


def frame(spark: SparkSession, values: Mapping[str, Any], columns: str = _COLUMNS) -> DataFrame:
    """Return a DataFrame with one partition."""
    return spark.createDataFrame(list(values.items()), columns).coalesce(1)


def write(rows: DataFrame, store: Path, **options: str) -> None:
    all_options = {"config": str(store), **options}
    rows.write.format("kip30").mode("append").options(**all_options).save()


def refusal(rows: DataFrame, store: Path, **options: str) -> str:
    """Return the error of a write that fails."""
    with pytest.raises(PySparkException) as caught:
        write(rows, store, **options)
    return str(caught.value)


def findings(error: str) -> dict[str, tuple[str, str]]:
    """Return outcome and detail of each key that *error* names."""
    lines = [line.strip().split("\t") for line in error.splitlines() if line.count("\t") == 2]
    return {key: (outcome, detail) for outcome, key, detail in lines}


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Let tasks get their rows in batches of `BATCH_ROWS`."""
    before = spark.conf.get(_ROWS_OF_BATCH)
    spark.conf.set(_ROWS_OF_BATCH, str(BATCH_ROWS))
    try:
        yield
    finally:
        spark.conf.set(_ROWS_OF_BATCH, before or "")


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_each_row_becomes_a_key(
    spark: SparkSession, target: Target, tmp_path: Path, kind: str
) -> None:
    file = write_properties(tmp_path / "target.properties", target.properties)
    values = VALUES | {"n0/größe": "ü".encode(), "n0/empty": b""}
    rows = values if kind == "binary" else {key: value.decode() for key, value in values.items()}
    written = frame(spark, rows, f"key string, value {kind}").repartition(3)
    write(written.select("value", "key"), file)
    assert contents(file, list(values)) == values


def test_records_read_from_a_store_are_written_into_another(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    fill(store, VALUES)
    other = tmp_path / "other.properties"
    other.write_text(store.read_text().replace(str(tmp_path / "store"), str(tmp_path / "other")))
    write(dataframes.records(spark, f"{store}#n1").select("key", "value"), other)
    assert contents(other, list(VALUES)) == {
        key: value for key, value in VALUES.items() if key.startswith("n1/")
    }


def test_another_value_stays_and_is_named_when_all_else_is_written(
    spark: SparkSession, store: Path
) -> None:
    fill(store, {"n0/k000": b"other", "n1/k001": VALUES["n1/k001"]})
    error = refusal(frame(spark, VALUES).repartition(2), store)
    assert "all but these keys are written: conflict 1, same 1, written 98" in error
    ((key, (outcome, detail)),) = findings(error).items()
    assert (key, outcome) == ("n0/k000", "conflict")
    assert "with other data" in detail
    assert contents(store, list(VALUES)) == VALUES | {"n0/k000": b"other"}


def test_another_value_is_replaced(spark: SparkSession, store: Path) -> None:
    fill(store, {"n0/k000": b"other"})
    write(frame(spark, VALUES), store, on_conflict="replace")
    assert contents(store, list(VALUES)) == VALUES


def test_a_write_stops_at_another_value(spark: SparkSession, store: Path) -> None:
    """The batch with the conflict, and those before it, are written, and no later one."""
    fill(store, {"n0/k015": b"other"})
    with small_batches(spark):
        error = refusal(frame(spark, VALUES), store, on_conflict="fail")
    assert "a task stopped at keys with other values: conflict 1, written 19" in error
    assert findings(error).keys() == {"n0/k015"}
    first = dict(list(VALUES.items())[: 2 * BATCH_ROWS])
    assert contents(store, list(VALUES)) == first | {"n0/k015": b"other"}


def test_rejected_rows_are_named(spark: SparkSession, store: Path) -> None:
    rows: list[tuple[str | None, bytes | None]] = [
        *VALUES.items(),
        ("n0/large", b"x" * 300_000),
        ("n0/", b"x"),
        ("n0/null", None),
        (None, b"x"),
    ]
    error = refusal(spark.createDataFrame(rows, _COLUMNS), store)
    assert "rejected 4, written 100" in error
    found = findings(error)
    assert found.keys() == {"n0/large", "n0/", "n0/null", ""}
    assert {outcome for outcome, _ in found.values()} == {"rejected"}
    assert found["n0/null"][1] == "the value is null, and no key is deleted"
    assert contents(store, [*VALUES, "n0/large", "n0/null"]) == VALUES


def test_of_two_rows_of_a_key_one_is_a_conflict(spark: SparkSession, store: Path) -> None:
    rows = [("n/k", b"a"), ("n/k", b"b")]
    with small_batches(spark):
        error = refusal(spark.createDataFrame(rows, _COLUMNS), store)
    assert "conflict 1, written 1" in error
    assert contents(store, ["n/k"])["n/k"] in {b"a", b"b"}


def test_a_task_that_is_repeated_writes_the_same(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """Its process ends after the first hundred writes, which count as written and are not repeated.

    One key has another value, so that the error shows the counts.
    """
    values = {f"n/k{number:03}": b"%d" % number for number in range(300)}
    fill(store, {"n/k299": b"other"})
    text = store.read_text().replace("plugin.backend = embedded\n", "")
    path = Path(__file__).parent
    more = f"plugin.locator.classname = odd_stores:EndsOnce\nplugin.additional.paths = {path}\n"
    ending = tmp_path / "ending.properties"
    ending.write_text(text + more)
    error = refusal(frame(spark, values), ending)
    assert (tmp_path / "ended").exists()
    assert "conflict 1, written 299" in error
    assert contents(store, list(values)) == values | {"n/k299": b"other"}


def test_a_store_that_does_not_answer_fails_the_write(spark: SparkSession, tmp_path: Path) -> None:
    settings = {
        "plugin.backend": "etcd",
        "plugin.etcd.endpoints": "127.0.0.1:1",
        "plugin.connect.timeout.ms": 200,
        "plugin.operation.timeout.ms": 200,
    }
    file = write_properties(tmp_path / "etcd.properties", settings)
    assert "UnavailableError" in refusal(frame(spark, VALUES), file)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"layout": "raw"}, "no option layout; it has config, on_conflict, store"),
        ({"onConflict": "keep", "rate": "1"}, "no option onconflict, rate"),
        ({"on_conflict": "skip"}, "on_conflict=skip: give one of keep, replace, fail"),
        ({"config": "nowhere.properties"}, "nowhere.properties: No such file"),
        ({"store": "{}"}, "no configuration as kip30's jobs pass it on"),
    ],
    ids=str,
)
def test_a_wrong_option_is_named(store: Path, options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        WriteOptions.parse({"config": str(store), **options})


def test_without_a_store_the_option_is_named() -> None:
    with pytest.raises(UsageError, match="takes the option 'config'"):
        WriteOptions.parse({"on_conflict": "keep"})


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ("key string, data binary", "has key (string), data (binary)"),
        ("key string, value binary, version int", "value (binary), version (int)"),
        ("key binary, value binary", "has key (binary), value (binary)"),
        ("key string, value long", "has key (string), value (bigint)"),
    ],
)
def test_other_columns_are_named(columns: str, shown: str) -> None:
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    with pytest.raises(UsageError, match=r"columns key \(string\) and value") as caught:
        check_columns(schema)
    assert shown in str(caught.value)


def test_a_refused_write_creates_no_store(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    assert "no option layout" in refusal(frame(spark, VALUES), store, layout="raw")
    others = frame(spark, VALUES, "key string, data binary")
    assert "has key (string), data (binary)" in refusal(others, store)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_a_write_only_appends(spark: SparkSession, store: Path, tmp_path: Path, mode: str) -> None:
    writer = frame(spark, VALUES).write.format("kip30").mode(mode).option("config", str(store))
    with pytest.raises(PySparkException) as caught:
        writer.save()
    assert "append" in str(caught.value).lower()
    assert not (tmp_path / "store").exists()


def test_an_error_names_no_more_keys_than_a_report() -> None:
    found = [Decided(f"n/{number}", "conflict", "x") for number in range(MOST_FINDINGS + 5)]
    half = len(found) // 2
    result = WriteResult.of(found[:half]) + WriteResult.of(found[half:])
    lines = result.text().splitlines()
    assert lines[0] == f"conflict {len(found)}"
    assert lines[-1] == "and 5 more"
    assert len(lines) == MOST_FINDINGS + 2
    assert len(WriteResult.of(found).findings) == MOST_FINDINGS
