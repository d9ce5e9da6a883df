"""Writing records in bulk, each with one outcome, and the driver whose term fences the writes."""
