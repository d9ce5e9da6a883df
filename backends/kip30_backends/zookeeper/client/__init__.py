"""The protocol of the servers, and kazoo's connections."""
