"""Clients and programs that checks set to work, and what they were notified of."""
