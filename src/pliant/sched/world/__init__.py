"""What the scheduler knows at one instant: rows, claims with undo, and indexes over both."""
