"""Replacing one method of one driver object, which is all that a mutant does."""

from collections.abc import Callable
from functools import partial
from typing import Any


def mutate(driver: object, method: str, mutation: Callable[..., Any]) -> None:
    """Replace *method* by *mutation*, whose first argument is the sound method."""
    vars(driver)[method] = partial(mutation, getattr(driver, method))
