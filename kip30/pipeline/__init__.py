"""The data pipeline on Spark: it copies, compares and follows the data of stores.

Only this package imports PySpark and Arrow, and of it only the modules that need them. What
decides (endpoints, mapping, waves, outcomes) is plain Python.
"""
