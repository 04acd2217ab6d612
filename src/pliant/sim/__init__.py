"""The simulator: runs the scheduler's own core on a trace, with a virtual clock."""
