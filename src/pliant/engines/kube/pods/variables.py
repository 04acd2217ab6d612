"""Values of environment variables, in secrets: one per workload in the server's namespace, one per task group
with values in the pods' namespace, and one for all pods of a distributed workload. Pods refer to the latter
two, so that no pod shows a value."""

import base64
import json
import re
import secrets
from collections.abc import Container, Iterator
from contextlib import contextmanager

from httpx2 import HTTPError
from lightkube.resources.core_v1 import Secret

from pliant.control.submit.variables import Sealed
from pliant.engines.kube.apiserver.cluster import Cluster, Owner, Refused
from pliant.engines.kube.apiserver.names import WORKLOAD, meeting_name, variables_name

KEY = "launches"
TOKEN = "PLIANT_TRAIN_TOKEN"
NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Names of variables that a secret can hold."""


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        raise OSError(f"the cluster does not keep environment variables: {error}") from error


class SealedSecrets:
    """`seal`, `has` and `retain` raise OSError, all other methods what the client raises."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._introduced: dict[str, Owner | None] = {}  # by workload; if lost, the work is only repeated

    @_as_os_error()
    def seal(self, workload: str, sealed: Sealed) -> None:
        if not sealed:
            self.forget(workload)
            return
        launches = {group: dict(variables.given) for group, variables in sealed.items()}
        self._cluster.keep(variables_name(workload), workload, {KEY: json.dumps(launches)})

    @_as_os_error()
    def has(self, workload: str) -> bool:
        return self._cluster.kept(variables_name(workload)) is not None

    def bring(self, workload: str, group: str, namespace: str, owner: Owner | None = None) -> str:
        """Makes the secret with that group's variables in that namespace; its name, empty without any."""
        kept = self._cluster.kept(variables_name(workload))
        if kept is None:
            return ""
        launches = json.loads(base64.b64decode(kept[KEY]))
        values = launches.get(group, launches.get("", {}))
        if not values:
            return ""
        if bad := [name for name in values if not NAME.fullmatch(name)]:
            raise Refused(f"{bad[0]!r} cannot be the name of an environment variable on a cluster")
        name = f"{variables_name(workload)}-{group}"[:63].rstrip("-")
        self._cluster.keep(name, workload, values, namespace, owner=owner)
        return name

    def introduce(self, workload: str, namespace: str, owner: Owner | None = None) -> None:
        """Makes the service by which the workload's pods find each other, and the secret that only they know.
        Those of another owner are replaced: they go with that owner, as its pods do."""
        renew = workload in self._introduced
        if renew and self._introduced[workload] == owner:
            return
        name, word = meeting_name(workload), secrets.token_urlsafe(32)
        if renew:
            self._cluster.part(name, namespace)
        self._cluster.keep(name, workload, {TOKEN: word}, namespace, owner=owner, renew=renew)
        self._cluster.introduce(name, workload, namespace, owner)
        self._introduced[workload] = owner

    def forget(self, workload: str) -> None:
        self._introduced.pop(workload, None)
        for secret in self._cluster.secrets(workload):
            self._drop(secret)

    def _drop(self, secret: Secret) -> None:
        """Deletes the secret, and the service of the same name if there is one."""
        metadata = secret.metadata
        assert metadata is not None and metadata.labels is not None
        if metadata.name == meeting_name(metadata.labels[WORKLOAD]):
            self._cluster.part(metadata.name, metadata.namespace or "")
        self._cluster.drop(secret)

    @_as_os_error()
    def retain(self, workloads: Container[str]) -> None:
        for secret in self._cluster.secrets():
            labels = (secret.metadata and secret.metadata.labels) or {}
            if labels.get(WORKLOAD) not in workloads:
                self._drop(secret)
