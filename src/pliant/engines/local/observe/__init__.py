"""Observes this machine: live attempts, what they use, and the kernel's out-of-memory kills."""
