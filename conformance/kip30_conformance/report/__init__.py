"""The results of a run of the suite: for machines, for people, as a table of all stores."""
