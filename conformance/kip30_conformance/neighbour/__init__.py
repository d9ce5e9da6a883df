"""Other programs that write where kip30 keeps its records, each with its vendor's own client."""
