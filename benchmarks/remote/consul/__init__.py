"""Consul with http.client alone."""
