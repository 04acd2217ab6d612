"""Records rows on the objects that show them, and reads them for a new server."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from httpx2 import HTTPStatusError
from lightkube import ApiError, Client

from pliant.control.errors import Refused
from pliant.control.left import Remnant
from pliant.control.ports import Row
from pliant.engines.kube.apiserver.cluster import status_of
from pliant.engines.kube.apiserver.names import CLUSTER, ROW, namespace_of
from pliant.engines.kube.resources.kinds import (
    DEPARTMENT,
    POOL,
    PROJECT,
    WORKLOAD,
    identity_of,
    quota_of,
    resource_of,
)
from pliant.model.tenancy import NO_QUOTA

log = logging.getLogger(__name__)

Json = Mapping[str, Any]

MOST = 128 * 1024
"""Most bytes of a recorded row; a larger one is not recorded. An object may have 256 KiB of annotations."""

CURES = {
    "Department": "Make it again: pliant department create {name} --quota ...",
    "Project": "Make it again: pliant project create {name} --quota {gpus}",
    "NodePool": "Make it again: pliant nodepool create {name} --label ...",
    "Workload": "If it does not run, submit it again: runai submit {name} ...",
}


class Remnants:
    """The records of one server. Nothing is recorded before `open`."""

    def __init__(self, cluster: str) -> None:
        self._cluster, self._scheduler = cluster, ""
        self._kept: Callable[[Row], Json] = lambda row: {}

    def open(self, scheduler: str, kept: Callable[[Row], Json]) -> None:
        """`kept`: returns what of a row is recorded."""
        self._scheduler, self._kept = scheduler, kept

    def annotations(self, row: Row | None) -> dict[str, Any]:
        """Metadata with the record of that row; {} for a row that is not ours, or too large."""
        said = self._kept(row) if row is not None else {}
        if not said:
            return {}
        text = json.dumps({"scheduler": self._scheduler, **said}, separators=(",", ":"))
        return {"annotations": {ROW: text}} if len(text) <= MOST else {}

    def change(self, metadata: Json, row: Row | None) -> dict[str, Any]:
        """The change that updates the record in these metadata; {} if none is needed, or it is not ours."""
        wanted, there = self.annotations(row), (metadata.get("annotations") or {}).get(ROW)
        ours = (metadata.get("labels") or {}).get(CLUSTER) == self._cluster
        changed = ours and wanted and wanted["annotations"][ROW] != there
        return {"uid": metadata["uid"], **wanted} if changed else {}


def remnants(client: Client, scheduler: str) -> Iterator[tuple[str, Remnant]]:
    """(server's name, record) of the objects that servers with that scheduler name left, the oldest of each
    kind first: a forged one is younger. Leaves out objects that are being deleted. The name is empty for
    projects and workloads that a user applied."""
    for kind in (POOL, DEPARTMENT, PROJECT, WORKLOAD):
        for body in sorted(_list(client, kind), key=_age):
            metadata, name = body["metadata"], body["metadata"]["name"]
            whose = (metadata.get("labels") or {}).get(CLUSTER, "")
            if metadata.get("deletionTimestamp"):
                continue
            if "spec" in body:
                if kind is PROJECT and (spec := _applied(name, body["spec"])) is not None:
                    yield "", Remnant("Project", name, {}, spec=spec)
                elif kind is WORKLOAD and (identity := identity_of(body)):
                    phase = str((body.get("status") or {}).get("phase", ""))
                    yield "", Remnant("Workload", name, {}, phase, identity, spec=body["spec"])
            elif whose and (one := _remnant(kind, body, scheduler)) is not None:
                yield whose, one


def _list(client: Any, kind: Any) -> Iterator[Json]:
    where = {"namespace": "*"} if kind is WORKLOAD else {}
    try:
        for found in client.list(kind, **where):
            yield found.to_dict()
    except ApiError as error:
        if status_of(error) not in (403, 404):
            raise
        log.warning("%s of a lost server are not known: %s", kind._api_info.plural, error)
    except HTTPStatusError as error:  # plain text: the API server does not know this kind
        if error.response.status_code != 404:
            raise


def _age(body: Json) -> str:
    return str(body["metadata"].get("creationTimestamp"))


def _remnant(kind: Any, body: Json, scheduler: str) -> Remnant | None:
    """None if a server with another scheduler name made it, or if it has no record."""
    metadata, status = body["metadata"], body.get("status") or {}
    text = (metadata.get("annotations") or {}).get(ROW)
    if text is None:
        return None
    try:
        row = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        row = {}
    if row.get("scheduler", scheduler) != scheduler:
        return None
    gpus, named = status.get("gpuQuota", "..."), kind._api_info.resource.kind
    return Remnant(
        named,
        metadata["name"],
        row,
        str(status.get("phase", "")),
        identity_of(body),
        partial(owns, metadata.get("namespace", "")),
        CURES[named].format(name=metadata["name"], gpus=gpus),
    )


def owns(namespace: str, project: str) -> bool:
    """True if the namespace is that of the project."""
    return namespace_of(project) == namespace


def _applied(name: str, spec: Json) -> Json | None:
    """What its spec says of a project, until it is applied; the department by name. None if it is invalid."""
    try:
        quotas = {each["name"]: quota_of(each).over(NO_QUOTA) for each in spec.get("nodePools", ())}
    except Refused:
        return None
    return {
        "quotas": tuple(sorted(quotas.items())),
        "default_pools": tuple(spec.get("defaultNodePools", ())),
        "department": spec.get("department", "default"),
        "namespace": f"runai-{name}",
        "origin": resource_of(PROJECT, name),
    }
