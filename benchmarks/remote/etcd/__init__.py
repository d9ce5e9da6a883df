"""etcd with grpcio alone."""
