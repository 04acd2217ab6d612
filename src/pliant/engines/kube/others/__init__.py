"""Pods that others made and that name Pliant as their scheduler."""
