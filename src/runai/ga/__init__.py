"""Gradient accumulation: several backward passes make one update."""
