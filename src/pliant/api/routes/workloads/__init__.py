"""Routes for workloads: submit, show, follow, explain, keep."""
