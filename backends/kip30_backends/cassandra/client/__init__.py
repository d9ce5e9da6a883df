"""The vendor's driver: its cluster, its connections, its statements."""
