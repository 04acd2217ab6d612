"""Clusters, nodes, node pools, topologies, bookings and scheduling settings."""
