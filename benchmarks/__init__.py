"""Costs and latencies of kip30: ``python -m benchmarks``. See docs/benchmarks.md.

Programs of their own are `recovery`, `deletions`, `coordinator.assigning` and `pipeline.jobs`.
"""
