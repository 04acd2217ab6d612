"""The actions of a cycle, from the least to the most disruptive."""
