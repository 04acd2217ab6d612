"""What a pod wears that others make and that gets a part of a GPU: the library that keeps its limits."""

from typing import Any

from pliant.engines.kube.lent import INSIDE
from pliant.engines.kube.names import DEVICES, GPU_CONF
from pliant.engines.kube.parts import BRING, OPEN, PRELOAD

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
WORN = "pliant-gpu"
"""The volume with its files."""


def wear(spec: dict[str, Any], main: dict[str, Any], image: str) -> None:
    """Give it to a pod that is not created yet, for its container `main`. Device and limits are those of its
    annotations, which are written when it is bound."""
    library = {"name": "pliant-library", "mountPath": INSIDE}
    ledger = {"name": "pliant-ledger", "mountPath": "/run/pliant"}
    others = [each for each in main.get("env", ()) if each["name"] != VISIBLE]
    main["env"] = [*others, {"name": VISIBLE, "valueFrom": _note(DEVICES)}]
    preload = {"name": WORN, "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload", "readOnly": True}
    main["volumeMounts"] = [
        *main.get("volumeMounts", ()),
        {**library, "readOnly": True},
        ledger,
        {"name": WORN, "mountPath": "/etc/pliant", "readOnly": True},
        preload,
    ]
    bring = {
        "name": "pliant-library",
        "image": image,
        "command": ["sh", "-c", BRING + OPEN],
        "resources": main.get("resources") or {},  # it comes before, so it adds nothing
        "volumeMounts": [library, ledger],
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    spec["initContainers"] = [bring, *spec.get("initContainers", ())]
    files = [{"path": "gpu.conf", **_note(GPU_CONF)}, {"path": "ld.so.preload", **_note(PRELOAD)}]
    spec["volumes"] = [
        *spec.get("volumes", ()),
        {"name": "pliant-library", "emptyDir": {}},
        {"name": "pliant-ledger", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": WORN, "downwardAPI": {"items": files}},
    ]


def _note(name: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}
