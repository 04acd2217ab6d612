"""Routes for amounts: now, over time, in reports."""
