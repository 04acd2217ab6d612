"""GPU fractions on a cluster: pods that hold whole devices, and agents that write the limits."""
