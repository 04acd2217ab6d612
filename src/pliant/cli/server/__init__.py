"""The server on this machine: up, down, backup, replay, doctor; and the login."""
