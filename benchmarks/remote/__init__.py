"""Costs of kip30 on real servers, beside the client libraries it uses."""
