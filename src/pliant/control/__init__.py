"""The loop and the use cases, and the ports through which they reach everything else."""
