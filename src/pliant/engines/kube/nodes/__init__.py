"""The nodes of the cluster, and what runs on each."""
