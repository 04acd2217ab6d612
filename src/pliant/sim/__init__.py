"""The simulator: the core that decides for real, fed from a trace under a clock of its own."""
