"""Tasks as pods: the pod's manifest, and the exchange with a running pod."""
