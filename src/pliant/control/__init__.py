"""The one loop and the use cases; the ports through which it reaches everything else."""
