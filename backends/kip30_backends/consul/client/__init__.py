"""All that knows HTTP and the `consul` module: connections, servers, requests by a deadline."""
