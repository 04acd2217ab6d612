"""Questions about the world: why a workload waits, what would help, what-if, dry runs and rehearsals."""
