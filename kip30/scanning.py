"""Reading a whole store, without a session and without writing: open it with `scanner`.

`kip30.driver.scanning` documents the promises of each class.
"""

from kip30.driver.scanning import (
    Change,
    Completeness,
    Consistency,
    Layout,
    Page,
    Position,
    Rejected,
    Row,
    ScanDriver,
    Span,
    View,
)
from kip30.runtime.resolution import scanner

__all__ = [
    "Change",
    "Completeness",
    "Consistency",
    "Layout",
    "Page",
    "Position",
    "Rejected",
    "Row",
    "ScanDriver",
    "Span",
    "View",
    "scanner",
]
