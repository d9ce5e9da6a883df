"""A snapshot as a process of its own, for `test_secrets`: ``python secret_run.py FILE RUN EVENTS``.

It prints all of the job that a person could see: plans, settings, errors with their tracebacks.
"""

import logging
import sys
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

from kip30.pipeline.run.report_files import write_report
from kip30.pipeline.spark.session import register, running_session
from kip30.pipeline.spark.source import FORMAT, ScanOptions
from kip30.pipeline.spark.worker_config import shipped
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint
from kip30.pipeline.transfer import snapshot


def main(file: str, out: Path, events: str) -> None:
    """Take a snapshot, with all output turned on."""
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    noisy = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events,
        "spark.local.dir": f"{events}/local",
        "spark.sql.extendedExplainProviders": "",
        "spark.driver.extraJavaOptions": "-Dkip30.test=1",
    }
    source = store_endpoint(shipped(parse_endpoint(file)))
    options = snapshot.SnapshotOptions(source=source, out=out)
    with running_session("local[2]", conf=noisy) as spark:
        spark.sparkContext.setLogLevel("INFO")
        _print(options, source, source.config.text(), *spark.sparkContext.getConf().getAll())
        for step in (_looked_at, _taken):
            try:
                _print(step(spark, options))
            except Exception as error:  # noqa: BLE001  any error is printed
                traceback.print_exception(error, file=sys.stdout)
                _print(repr(error), error.__cause__)


def _looked_at(spark: SparkSession, options: snapshot.SnapshotOptions) -> object:
    texts = ScanOptions(options.source.config, options.source.view()).texts()
    _print(texts)
    register(spark)
    frame = spark.read.format(FORMAT).options(**texts).load()
    frame.explain("extended")
    return frame.collect()[:1]


def _taken(spark: SparkSession, options: snapshot.SnapshotOptions) -> object:
    report = snapshot.run(spark, options)
    write_report(options.out, report)
    return report


def _print(*things: object) -> None:
    sys.stdout.write(" ".join(map(str, things)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
