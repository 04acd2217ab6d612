"""The GPUs of this machine, real (NVML) or simulated, and the shares of them."""
