"""Guarantees of every store while nothing fails."""
