"""Turns a submission into a workload: every check that needs no server state."""
