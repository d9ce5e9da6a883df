"""Names of the figures of growth, by which a table finds the row and the size of each."""

MISSED = "s, not done in"
"""The unit of a figure that has no value but the deadline."""

FAILED = "failed"
"""The unit of a figure whose process failed."""

_SIZE = ", N = "


def named(row: str, size: int) -> str:
    return f"{row}{_SIZE}{size:,}"


def split(name: str) -> tuple[str, int | None]:
    """Return the row, and the size unless the figure is about all sizes."""
    row, found, size = name.partition(_SIZE)
    return row, int(size.replace(",", "")) if found else None
