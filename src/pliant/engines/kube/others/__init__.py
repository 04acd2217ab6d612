"""Pods that somebody else made and that name us as their scheduler."""
