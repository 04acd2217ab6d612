"""What a cycle tries, from the least to the most disruptive."""
