"""Routes about people and programs, and what they may do."""
