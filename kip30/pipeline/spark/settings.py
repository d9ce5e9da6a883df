"""Spark settings of a caller: as pairs, or in a file in the format of ``spark-submit``."""

from collections.abc import Iterable
from pathlib import Path

from kip30.config import entries
from kip30.config.secrets import key_alone
from kip30.errors import UsageError

MASTER = "spark.master"
_PREFIX = "spark."
_BLANKS = " \t\f"


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return the settings that *pairs* write as ``KEY=VALUE``; the last one of a key counts.

    Raises:
        UsageError: One is not written like that, or its key is not a Spark setting.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not (key and value):
            raise UsageError(f"--conf {key_alone(pair)}: write it as KEY=VALUE")
        if not key.startswith(_PREFIX):
            raise UsageError(
                f"--conf {key}=…: not a Spark setting: those begin with {_PREFIX!r};"
                " `kip30 --set` takes settings of kip30's"
            )
        settings[key] = value
    return settings


def settings_in(file: Path) -> dict[str, str]:
    """Return the settings in *file*, which has the format of Java's properties, as Spark reads it.

    ``spark-submit`` leaves out keys that do not begin with ``spark.``, with a warning. Here they
    are refused: the file may be one of kip30's. No error shows a value.

    Raises:
        ConfigError: The file cannot be read, or is no properties file.
        UsageError: It has a key that is not a Spark setting, or has no value; the message names
            the line.
    """
    settings: dict[str, str] = {}
    for key, value in entries(file).items():
        if not key.startswith(_PREFIX):
            raise UsageError(
                f"{value.origin}: {key} is not a Spark setting: those begin with {_PREFIX!r}:"
                " leave it out; `kip30 --config FILE` reads settings of kip30's"
            )
        if not (text := value.text.strip(_BLANKS)):
            raise UsageError(f"{value.origin}: {key} has no value: give it one, or leave it out")
        settings[key] = text
    return settings
