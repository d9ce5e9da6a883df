"""All that knows kazoo and ZooKeeper's protocol: connections, requests, answers."""
