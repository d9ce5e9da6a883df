"""Finds the benchmarks, which are not installed, behind all that is."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
