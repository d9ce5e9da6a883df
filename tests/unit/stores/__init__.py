"""Cases that are the same on several stores: classes, which the tests of each store subclass.

So a store's tests stand in its own folder, and run without the other stores.
"""
