"""Routes about machines, and about who owns their quota."""
