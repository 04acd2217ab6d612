"""One module for each family of routes."""
