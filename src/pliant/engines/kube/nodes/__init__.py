"""The nodes of the cluster, and what stands on each."""
