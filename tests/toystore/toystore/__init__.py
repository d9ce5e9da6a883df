"""A kip30 backend to learn from: a store in the memory of one process."""

from toystore.backend import ToyBackend

__all__ = ["ToyBackend"]
