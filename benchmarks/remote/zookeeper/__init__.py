"""ZooKeeper with kazoo alone."""
