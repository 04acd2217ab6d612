"""Tasks in virtual time, for tests and the simulator."""
