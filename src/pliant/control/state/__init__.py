"""What the server knows, and how facts, plans and people change it: rows in, rows recorded."""
