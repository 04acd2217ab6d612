"""Output: formats, tables, and how amounts and times are written."""
