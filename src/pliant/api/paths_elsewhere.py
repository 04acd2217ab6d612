"""Run:ai paths that are not served: what took the place of each, or why there is nothing."""

import re

IDPS = "/api/v1/idps"
_SET_ELSEWHERE = "The login provider is set in openid.yaml: see docs/reference/openid.md."
_CLAIMS = (
    "The claims groups, email and uid are set in openid.yaml: see docs/reference/openid.md. gid and "
    "supplementaryGroups cannot be: a job has the groups that its account has on this machine."
)

_SUCCESSORS = (
    (r"/api/v1/apps(/.*)?", "/api/v1/service-accounts"),
    (r"/api/v1/user-applications(/.*)?", "/api/v1/access-keys"),
    (r"/api/v1/administration/user-applications(/.*)?", "/api/v1/administration/access-keys"),
    (r"/api/v1/clusters/[^/]+/nodes", "/api/v1/nodes"),
    (r"/api/v1/authorization/roles(/.*)?", "/api/v2/authorization/roles"),
    (r"/api/v1/asset/workload-template(/.*)?", "/api/v1/workload-templates"),
)
"""Paths that Run:ai 3.0 removed and Pliant never had, and what took their place."""

_NOT_HERE = (
    (
        r"/api/v1/slack(/.*)?",
        "Pliant sends nothing to Slack itself.",
        "Use a webhook: POST /api/v1/notifications.",
    ),
    (
        r"/v1/k8s/setting(/.*)?",
        "The settings of the cluster have another path here.",
        "Use /api/v1/scheduling-settings.",
    ),
    (
        r"/api/v1/authorization/settings",
        "The settings of logins have another path here.",
        "Use /api/v1/security/settings.",
    ),
)
"""Paths of Run:ai that mean nothing here, why, and what to use."""

KINDS = ("trainings", "workspaces", "distributed", "inferences")
_KIND = re.compile(r"/api/v[12]/workloads/([a-z][a-z-]*)(/[^/]+(/(suspend|resume|revisions))?)?")


def missing_path(method: str, path: str) -> tuple[str, str] | None:
    """(message, hint) for a path that Run:ai removed or for an unknown kind of workloads; else None."""
    for pattern, successor in _SUCCESSORS:
        if re.fullmatch(pattern, path):
            return f"{path} was removed in Run:ai 3.0.", f"Use {successor}."
    for pattern, why, instead in _NOT_HERE:
        if re.fullmatch(pattern, path):
            return why, instead
    kind = _KIND.fullmatch(path)
    if kind is None or kind[1] in (*KINDS, "batch", "count"):
        return None
    if method != "POST" and kind[2] is None:
        return None
    return f"There is no kind of workloads {kind[1][:60]!r}.", f"The kinds are {', '.join(KINDS)}."


def set_elsewhere(path: str) -> str:
    """Where to set what the API only shows; '' if the path is not one of these."""
    if not path.startswith(IDPS):
        return ""
    return _CLAIMS if path.endswith("/mappers") else _SET_ELSEWHERE
