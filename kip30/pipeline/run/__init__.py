"""The folder of a run, its progress and its reports, which all jobs share."""
