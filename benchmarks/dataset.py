"""The data that is read: many small namespaces, and one that has half of all rows."""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice

from kip30 import PluginLocator

_SMALL = 20
_BATCH = 1_000
_HALF_OF_A_VALUE = 50


def fill(locator: PluginLocator, rows: int) -> None:
    """Write *rows* rows of 100 bytes, in batches of 1,000."""
    storage, keys = locator.storage(), _keys(rows)
    while batch := _batch(keys):
        storage.put_many(batch)


def _batch(keys: Iterator[str]) -> Mapping[str, str]:
    return {key: _value(key) for key in islice(keys, _BATCH)}


def _keys(rows: int) -> Iterator[str]:
    for number in range(rows):
        yield f"{_namespace(number)}/item-{number:08}"


def _namespace(number: int) -> str:
    half, rest = divmod(number, 2)
    return f"team-{half % _SMALL:02}/settings" if rest else "catalogue/items"


def _value(key: str) -> str:
    return blake2b(key.encode(), digest_size=_HALF_OF_A_VALUE).hexdigest()
