"""Tasks as pods of a Kubernetes cluster."""
