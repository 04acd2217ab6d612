"""The Kubernetes engine: runs tasks as pods of a cluster."""
