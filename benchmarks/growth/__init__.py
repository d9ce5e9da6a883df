"""How cost grows with the number of keys, members, listeners, sessions and services."""
