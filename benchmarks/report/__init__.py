"""What a run measured: figures, the file that keeps them, and the page that shows them."""
