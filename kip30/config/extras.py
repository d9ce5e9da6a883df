"""The extras of the package: what a store or the conformance suite needs besides kip30."""


def how_to_install(extra: str) -> str:
    """Return how to install *extra*, for the end of a message."""
    return f"in a checkout of kip30: pip install '.[{extra}]'"
