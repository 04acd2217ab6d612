"""The server's state in memory, and how facts, plans and requests change it: rows in, rows recorded."""
