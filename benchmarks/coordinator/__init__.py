"""Groups that divide work: how long they take for that, and assignors alone."""
