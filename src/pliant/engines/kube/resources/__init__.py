"""Custom resources: objects on the cluster that stand for rows, and rows for them."""
