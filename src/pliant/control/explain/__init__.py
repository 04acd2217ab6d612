"""Questions about the world: why does it wait, what would help, what if, what would become of it."""
