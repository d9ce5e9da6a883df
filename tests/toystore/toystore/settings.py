"""Configuration of the toy store."""

from dataclasses import dataclass

from kip30.config import integer, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ToySettings:
    """Settings of the toy store, ``plugin.toy.*``."""

    capacity: int = setting(
        "plugin.toy.capacity",
        integer(minimum=1),
        default=100_000,
        doc="How many records the store takes",
    )
