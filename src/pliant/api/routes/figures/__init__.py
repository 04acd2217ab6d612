"""Routes about amounts: now, over time, in reports."""
