"""Tasks as pods: what a pod is made of, and what is said with one that runs."""
