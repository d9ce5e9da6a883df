"""Cassandra with cassandra-driver alone."""
