"""Parts of GPUs on a cluster: pods that hold a device for others, and the agents that keep limits."""
