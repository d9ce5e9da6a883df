"""The jobs snapshot, restore, migrate and preflight."""
