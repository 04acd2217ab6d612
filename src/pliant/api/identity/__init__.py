"""Who asks, and how they show it."""
