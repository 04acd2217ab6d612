"""Telling people what became of their jobs: by mail, and by addresses of the web."""
