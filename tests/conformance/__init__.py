"""Scheduling scenarios of a peer's test suite, run against Pliant's World and decide()."""
