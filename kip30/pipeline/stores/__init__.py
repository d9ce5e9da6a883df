"""The stores that jobs read and write, as arguments and configurations name them."""
