"""The search for victims: what may be taken, what it costs, and whether the outcome holds."""
