"""Wrong versions of the pipeline, each with the test that convicts it, for `test_pipeline_bites`.

A mutant is named by its contract case and by what its author overlooked.
"""

from .comparing import COMPARING
from .following import FOLLOWING
from .mutant import Edit, Mutant, mutated
from .reading import READING
from .taking_over import TAKING_OVER
from .writing import WRITING

__all__ = ["MUTANTS", "Edit", "Mutant", "mutated"]

MUTANTS: dict[str, Mutant] = READING | WRITING | COMPARING | FOLLOWING | TAKING_OVER
