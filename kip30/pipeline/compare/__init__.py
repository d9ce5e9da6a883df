"""The jobs diff and repair."""
