"""The API server: the way to it, what is asked of it and followed, and what our objects are called there."""
