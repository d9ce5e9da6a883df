"""The gate: which tests it holds, how much time they have, and what a failure means."""
