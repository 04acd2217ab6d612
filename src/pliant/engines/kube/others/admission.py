"""Answers the admission webhook about new pods that ask for a GPU fraction: gives them the library that keeps
their limits, removes annotations in our name, or refuses the pod."""

import base64
import copy
import json
from typing import Any

from pliant.engines.kube.apiserver.names import AGENT, OURS
from pliant.engines.kube.apiserver.seen import GPU_RESOURCE, MAIN
from pliant.engines.kube.fractions.worn import WORN, wear
from pliant.engines.kube.others.offers import contradiction, part_of

Json = dict[str, Any]


def admit(review: Json, scheduler: str, image: str, *, kept: bool = False) -> Json:
    """The answer to an AdmissionReview. `image`: Pliant's image; empty: there is none. `kept`: node agents
    write the limits."""
    request = review["request"]
    pod, answer = request["object"], {"uid": request["uid"], "allowed": True}
    why = _refusal(pod, scheduler, image)
    if why:
        answer |= {"allowed": False, "status": {"code": 422, "reason": "Invalid", "message": why}}
    elif changes := _changes(pod, scheduler, image, kept):
        patch = base64.b64encode(json.dumps(changes).encode()).decode()
        answer |= {"patchType": "JSONPatch", "patch": patch}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


def _notes(pod: Json, scheduler: str) -> dict[str, str]:
    """The pod's annotations; {} if the pod is for another scheduler."""
    ours = pod["spec"].get("schedulerName") == scheduler
    return (pod["metadata"].get("annotations") or {}) if ours else {}


def _refusal(pod: Json, scheduler: str, image: str) -> str:
    notes = _notes(pod, scheduler)
    limits = ((each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"])
    why = contradiction(notes, asks=any(GPU_RESOURCE in each for each in limits))
    if not why and part_of(notes) is not None and not image:
        return "A part of a GPU needs the image of Pliant: pliant down, then pliant up --share-image IMAGE."
    return why


def _changes(pod: Json, scheduler: str, image: str, kept: bool) -> list[Json]:
    """A JSON patch; [] for a pod that has everything. Of the annotations in our name only AGENT is known so
    early: all others come from other clients, and are removed."""
    spec, notes = copy.deepcopy(pod["spec"]), _notes(pod, scheduler)
    if part_of(notes) is None:
        return []
    mine = {AGENT: "true"} if kept else {}
    said = {name: value for name, value in notes.items() if name.startswith(OURS)}
    written: list[Json] = [_on(name, "remove") for name in sorted(said.keys() - mine.keys())]
    written += [_on(name, "add", value=value) for name, value in mine.items() if said.get(name) != value]
    if any(each["name"] == WORN for each in spec.get("volumes", ())):
        return written
    names = [each["name"] for each in spec["containers"]]
    at = names.index(MAIN) if MAIN in names else 0
    main = spec["containers"][at]
    wear(spec, main, image, kept)
    container = f"/spec/containers/{at}"
    return [
        *written,
        {"op": "add", "path": f"{container}/env", "value": main["env"]},
        {"op": "add", "path": f"{container}/volumeMounts", "value": main["volumeMounts"]},
        {"op": "add", "path": "/spec/initContainers", "value": spec["initContainers"]},
        {"op": "add", "path": "/spec/volumes", "value": spec["volumes"]},
    ]


def _on(note: str, op: str, **more: str) -> Json:
    """One change of that annotation."""
    name = note.replace("~", "~0").replace("/", "~1")
    return {"op": op, "path": f"/metadata/annotations/{name}", **more}
