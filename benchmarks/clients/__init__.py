"""Clients that are compared: kip30, the client library of each store alone, and Tooz."""
