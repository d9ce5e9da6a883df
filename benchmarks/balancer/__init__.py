"""HAProxy in front of three runners: whom its requests reach while one leader follows another."""
