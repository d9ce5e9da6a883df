"""All that knows cassandra-driver: its cluster, its connections, its statements."""
