"""What kip30 costs on real servers, beside the client libraries it uses."""
