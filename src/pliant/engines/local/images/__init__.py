"""Images that are built into the local engine: programs that run inside a task."""
