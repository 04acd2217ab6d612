"""Starts the processes of attempts: their environment, confinement, supervisor and account."""
