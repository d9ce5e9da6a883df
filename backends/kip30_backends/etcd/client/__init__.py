"""gRPC to the servers: connections, messages, endpoints."""
