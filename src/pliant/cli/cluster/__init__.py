"""Machines: clusters, nodes, node pools, topologies, scheduling settings."""
