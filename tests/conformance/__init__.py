"""Scheduling scenarios of a peer's test suite, run against production's World and decide()."""
