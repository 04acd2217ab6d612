"""Which places a task may have, and which of them is best."""
