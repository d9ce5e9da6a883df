"""Sessions of Spark, the data source ``kip30``, and the work of its tasks."""
