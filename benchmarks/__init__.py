"""What kip30 costs, and how soon it acts: ``python -m benchmarks``. See docs/benchmarks.md."""
