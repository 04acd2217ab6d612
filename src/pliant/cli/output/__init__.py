"""How results leave: formats, tables, and how amounts and times read."""
