"""Costs and latencies of kip30: ``python -m benchmarks``. See docs/benchmarks.md."""
