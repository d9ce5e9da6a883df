"""A backend to learn from: a store behind a socket, which can be slow, silent, gone and back."""

from linestore.backend import LineBackend

__all__ = ["LineBackend"]
