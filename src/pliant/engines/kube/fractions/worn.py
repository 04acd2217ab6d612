"""Adds the library that keeps limits to pods of others that ask for a GPU fraction."""

from typing import Any

from pliant.engines.kube.apiserver.names import DEVICES, GPU_CONF, LEDGER
from pliant.engines.kube.fractions.agents import FOLDER
from pliant.engines.kube.fractions.lent import INSIDE
from pliant.engines.kube.fractions.parts import BRING, OPEN, PRELOAD

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
WORN = "pliant-gpu"
"""The volume with its files."""

POD = {"PLIANT_POD_NAMESPACE": "metadata.namespace", "PLIANT_POD_NAME": "metadata.name"}
OWN = "$(PLIANT_POD_NAMESPACE)_$(PLIANT_POD_NAME)"
"""The pod's folder below the agents' folder; the pod's name is not known yet."""

WAIT = """ || exit 1
own="/limits/${PLIANT_POD_NAMESPACE}_$PLIANT_POD_NAME"
until [ "$(cat "$own/uid" 2>/dev/null)" = "$PLIANT_POD_UID" ]; do
  [ -n "$said" ] || echo "waits until the agent of this node has written its limits"; said=1; sleep 0.2
done"""
"""A folder that an older pod of the same name has left does not count."""


def wear(spec: dict[str, Any], main: dict[str, Any], image: str, kept: bool) -> None:
    """Adds the library to a pod that is not created yet, for its container `main`. Device and limits come
    from annotations written when the pod is bound. The kubelet updates the file with the limits, or the
    node's agent if they are `kept`."""
    library = {"name": "pliant-library", "mountPath": INSIDE}
    others = [each for each in main.get("env", ()) if each["name"] not in (VISIBLE, *POD)]
    env = [{"name": name, "valueFrom": _field(path)} for name, path in POD.items()] if kept else []
    main["env"] = [*others, *env, {"name": VISIBLE, "valueFrom": _note(DEVICES)}]
    preload = {"name": WORN, "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload", "readOnly": True}
    files = [{"path": "ld.so.preload", **_note(PRELOAD)}]
    bring: dict[str, Any] = {"env": [], "volumeMounts": [library]}
    if kept:
        more = {"name": "pliant-limits", "hostPath": {"path": FOLDER}}
        limits, ledger = (
            {
                "name": "pliant-limits",
                "mountPath": path,
                "subPathExpr": f"{OWN}/{part}",
                "readOnly": part == "conf",
            }
            for path, part in (("/etc/pliant", "conf"), (LEDGER, "ledger"))
        )
        script = BRING + WAIT
        bring["env"] = [*env, {"name": "PLIANT_POD_UID", "valueFrom": _field("metadata.uid")}]
        bring["volumeMounts"].append({"name": "pliant-limits", "mountPath": "/limits", "readOnly": True})
    else:
        more = {"name": "pliant-ledger", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
        ledger = {"name": "pliant-ledger", "mountPath": "/run/pliant"}
        limits = {"name": WORN, "mountPath": "/etc/pliant", "readOnly": True}
        script = BRING + OPEN
        files.append({"path": "gpu.conf", **_note(GPU_CONF)})
        bring["volumeMounts"].append(ledger)
    main["volumeMounts"] = [
        *main.get("volumeMounts", ()),
        {**library, "readOnly": True},
        ledger,
        limits,
        preload,
    ]
    bring |= {
        "name": "pliant-library",
        "image": image,
        "command": ["sh", "-c", script],
        "resources": main.get("resources") or {},  # runs before it, so the pod's sum does not grow
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    spec["initContainers"] = [bring, *spec.get("initContainers", ())]
    spec["volumes"] = [
        *spec.get("volumes", ()),
        {"name": "pliant-library", "emptyDir": {}},
        more,
        {"name": WORN, "downwardAPI": {"items": files}},
    ]


def _note(name: str) -> dict[str, Any]:
    return _field(f"metadata.annotations['{name}']")


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}
