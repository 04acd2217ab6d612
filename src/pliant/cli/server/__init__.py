"""The server on this machine: up, down, backup, replay, doctor; and who one is to it."""
