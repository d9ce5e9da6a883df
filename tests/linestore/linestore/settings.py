"""Configuration of the line store."""

from dataclasses import dataclass

from kip30.config import Address, addresses, setting

PORT = 7300


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSettings:
    """Settings of the line store, ``plugin.line.*``."""

    address: tuple[Address, ...] = setting(
        "plugin.line.address",
        addresses(PORT),
        default=f"127.0.0.1:{PORT}",
        doc="the server, of which there is one",
    )
