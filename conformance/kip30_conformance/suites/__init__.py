"""What every store must keep while nothing fails."""
