"""What every store must keep when processes, connections or servers fail."""
