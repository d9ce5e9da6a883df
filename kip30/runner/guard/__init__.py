"""The guard process: it stands between a runner and its command and outlives either's death.

It is started with a bare interpreter that knows this folder only, so nothing in
here imports anything but the standard library and its own siblings.
"""
