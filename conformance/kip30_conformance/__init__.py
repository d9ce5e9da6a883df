"""The conformance suite: test classes that a store's test file subclasses, and their runner."""
