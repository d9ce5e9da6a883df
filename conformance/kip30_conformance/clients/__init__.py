"""Clients and programs that checks run, and the notifications that they received."""
