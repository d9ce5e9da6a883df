"""Parts that every store needs: futures, timers, life cycles, retries."""
