"""Where a task may stand and which place is best."""
