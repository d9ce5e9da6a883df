"""Installation of test servers: recipes, and the cache folder that holds the results."""
