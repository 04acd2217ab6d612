"""Custom resources: keeps objects on the cluster and the server's rows equal."""
