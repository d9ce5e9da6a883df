"""HTTP to the servers: connections, the vendor's library, one operation's exchange."""
