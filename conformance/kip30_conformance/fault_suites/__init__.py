"""Guarantees of every store when processes, connections or servers fail."""
