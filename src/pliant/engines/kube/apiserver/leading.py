"""Records on the cluster which server leads."""

from functools import partial
from typing import Any

from lightkube import ApiError
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Pod

from pliant.control.ports import StaleEpoch
from pliant.engines.kube.apiserver.cluster import Cluster, made, missing, status_of
from pliant.engines.kube.apiserver.names import lease_name


def mark(cluster: Cluster, namespace: str, name: str, label: str) -> None:
    """Sets the label on that pod, and removes it from all other pods of the namespace."""
    client = cluster.client
    for pod in client.list(Pod, namespace=namespace, labels={label: "true"}):
        other = pod.metadata.name if pod.metadata is not None else None
        if other and other != name:
            change: dict[str, Any] = {"metadata": {"labels": {label: None}}}
            missing(partial(client.patch, Pod, other, change, namespace=namespace))
    client.patch(Pod, name, {"metadata": {"labels": {label: "true"}}}, namespace=namespace)


def raise_epoch(cluster: Cluster, epoch: int) -> None:
    """Records `epoch` in the server's lease. Raises StaleEpoch if a higher one is recorded."""
    client, name = cluster.client, lease_name(cluster.name)
    while True:
        lease = missing(lambda: client.get(Lease, name))
        spec = {"holderIdentity": "pliant", "leaseTransitions": epoch}
        try:
            if lease is None or lease.spec is None:
                client.create(made(Lease, {"metadata": {"name": name}, "spec": spec}))
                return
            leads = lease.spec.leaseTransitions or 0
            if leads > epoch:
                raise StaleEpoch(f"epoch {epoch} is over: {leads} leads")
            lease.spec.leaseTransitions = epoch
            client.replace(lease)
            return
        except ApiError as error:
            if status_of(error) != 409:
                raise
