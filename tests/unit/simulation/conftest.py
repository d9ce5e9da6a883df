"""Makes the example stores of the guide importable."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[2]

sys.path += [str(_TESTS / name) for name in ("toystore", "linestore")]
