"""The job feed: a tail reads changes into a journal, whose rows reach a sink."""
