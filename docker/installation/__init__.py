"""How test servers get onto a machine: recipes, and a cache folder that they are made into."""
