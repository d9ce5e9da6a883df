"""Growth of cost with the number of keys, members, listeners, sessions and services."""
