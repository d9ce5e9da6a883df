"""What a run of the suite found: for machines, for people, as a table of all stores."""
