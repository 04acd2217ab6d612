"""From what somebody submits to a workload: every check that needs no server state."""
