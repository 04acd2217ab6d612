"""What goes on for long: event streams, running commands, waiting for a new board."""
