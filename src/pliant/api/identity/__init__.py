"""Authentication: who the caller of a request is, and how the caller proves it."""
