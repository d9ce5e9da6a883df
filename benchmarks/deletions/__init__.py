"""Whether a namespace and a group of Cassandra stay usable, and as fast, after many deletions."""
