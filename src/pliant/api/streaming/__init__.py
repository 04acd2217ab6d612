"""Long-running work: event streams, running commands, waiting for a new board."""
