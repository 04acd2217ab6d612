"""Turns views of the board into the answers that clients get."""
