"""Assets for submissions: named parts of them, whole templates, and policies for them."""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """Who may use an asset, the widest first."""

    TENANT = "tenant"
    DEPARTMENT = "department"
    PROJECT = "project"


class AssetKind(StrEnum):
    ENVIRONMENT = "environment"
    COMPUTE = "compute"
    TEMPLATE = "template"
    POLICY = "policy"
    REPORT = "report"
    PASSWORD = "password"
    GENERIC_SECRET = "genericSecret"
    GIT = "git"
    HOST_PATH = "hostPath"
    NFS = "nfs"


CREDENTIALS = frozenset({AssetKind.PASSWORD, AssetKind.GENERIC_SECRET})
DATA_SOURCES = frozenset({AssetKind.GIT, AssetKind.HOST_PATH, AssetKind.NFS})


@dataclass(frozen=True, slots=True)
class Asset:
    """Its name is unique among its kind, workloads and scope. A policy has no name: there is one of it."""

    id: str
    kind: AssetKind
    workloads: str  # trainings | workspaces | distributed | inferences: of a template or policy; else ''
    name: str
    scope: Scope
    scope_id: str  # id of the department or project; empty: the tenant
    body: str  # JSON: a spec, the defaults and rules of a policy, or a report; of a credential sealed values
    description: str = ""
    created: int = 0  # ms since the epoch
    created_by: str = ""
    updated: int = 0
