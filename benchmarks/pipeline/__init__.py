"""Bulk reading, and the jobs that are built on it."""
