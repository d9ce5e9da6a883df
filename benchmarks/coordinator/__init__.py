"""Groups that divide work."""
