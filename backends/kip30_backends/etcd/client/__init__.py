"""All that knows gRPC and etcd's API: connections, messages, endpoints."""
