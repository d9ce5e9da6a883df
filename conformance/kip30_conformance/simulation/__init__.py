"""Programs of this process on simulated threads and under a virtual clock, decided by a seed."""
