"""What GPUs there are: NVML or simulated."""
