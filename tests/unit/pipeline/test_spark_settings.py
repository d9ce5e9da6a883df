"""Settings of Spark's as pairs and in files."""

import os
from pathlib import Path

import pytest

from kip30 import ConfigError, UsageError
from kip30.pipeline.spark.settings import settings_in, settings_of

_AS_SPARK_READS_IT = """
# a comment, and
! another one
spark.master            spark://5.6.7.8:7077
spark.eventLog.enabled=true
  spark.app.name : two words\t
spark.executor.extraJavaOptions  -XX:+PrintGCDetails -Dkey=value \\
    -Dnumbers="one two"
spark.driver.memory 1g
spark.driver.memory 2g
"""


def test_a_file_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text(_AS_SPARK_READS_IT)
    assert settings_in(file) == {
        "spark.master": "spark://5.6.7.8:7077",
        "spark.eventLog.enabled": "true",
        "spark.app.name": "two words",
        "spark.executor.extraJavaOptions": '-XX:+PrintGCDetails -Dkey=value -Dnumbers="one two"',
        "spark.driver.memory": "2g",
    }


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"spark.a 1\nplugin.backend=etcd\n", ":2: plugin.backend is not a Spark setting"),
        (b"--conf spark.a=1\n", ":1: --conf is not a Spark setting"),
        (b"\nspark.driver.memory\n", ":2: spark.driver.memory has no value"),
        (b"spark.driver.memory =  \n", ":1: spark.driver.memory has no value"),
        (b"spark.a=gr\xf6\xdfe\n", ":1: not UTF-8"),
        (b"spark.a=\\u12\n", ":1: .*four hex digits"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, error: str) -> None:
    file = tmp_path / "spark.conf"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=f"spark.conf{error}"):
        settings_in(file)


def test_no_error_shows_a_value(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("sparc.ssl.keyPassword hunter2\n")
    with pytest.raises(UsageError, match="keyPassword") as caught:
        settings_in(file)
    assert "hunter2" not in str(caught.value)


def test_a_path_without_a_regular_file_is_refused(tmp_path: Path) -> None:
    """A pipe, too: Spark reads the file once more."""
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("gone", "No such file"), (".", "directory"), ("pipe", "not a regular file")):
        with pytest.raises(ConfigError, match=f"cannot read .*{why}"):
            settings_in(tmp_path / name)


def test_of_pairs_the_last_one_counts() -> None:
    assert settings_of(["spark.a=1", "spark.b=x=y", "spark.a=2"]) == {
        "spark.a": "2",
        "spark.b": "x=y",
    }
    for wrong in ("spark.a", "spark.a=", "=1"):
        with pytest.raises(UsageError, match="write it as KEY=VALUE"):
            settings_of([wrong])


def test_an_error_shows_the_key_of_a_wrong_pair_alone() -> None:
    with pytest.raises(UsageError, match=r"^--conf spark\.password: write") as error:
        settings_of(["spark.password:hunter2"])
    assert "hunter2" not in str(error.value)


def test_a_pair_that_is_no_setting_of_sparks_is_refused() -> None:
    """spark-submit leaves it out, with a warning. The value may be a secret."""
    with pytest.raises(UsageError, match="not a Spark setting") as error:
        settings_of(["plugin.backend=hidden"])
    assert "hidden" not in str(error.value)
