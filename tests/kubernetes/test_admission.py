"""The admission webhook on pods with a part of a GPU: changed, refused, or left as they are."""

import asyncio
import base64
import copy
import json

import pytest
from click.testing import CliRunner

from pliant.api.admission import MOST, PATH, Admission
from pliant.cli.cluster.webhook import webhook
from pliant.engines.kube.others.admission import admit

IMAGE = "registry/pliant:1"
HALF = {"gpu-fraction": "0.5"}


def pod(notes=None, *, scheduler="pliant", gpus=0, **spec):
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    containers = [{"name": "side", "image": "side"}, {"name": "main", "image": "train", **limits}]
    metadata = {"name": "any", **({"annotations": notes} if notes else {})}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": containers, **spec}}


def asked(about, image=IMAGE, **more):
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    answer = admit({**review, "request": {"uid": "7", "object": about}}, "pliant", image, **more)
    assert {key: answer[key] for key in review} == review and answer["response"]["uid"] == "7"
    return answer["response"]


def patched(about, **more):
    found = copy.deepcopy(about)
    response = asked(about, **more)
    assert response["allowed"]
    for change in json.loads(base64.b64decode(response.get("patch", "W10="))):
        *path, last = (word.replace("~1", "/") for word in change["path"].strip("/").split("/"))
        where = found
        for each in path:
            where = where[int(each) if isinstance(where, list) else each]
        if change["op"] == "remove":
            del where[last.replace("~0", "~")]
        else:
            assert change["op"] == "add"
            where[last.replace("~0", "~")] = change["value"]
    return found


def test_it_gets_the_library_and_its_device_from_its_annotations():
    before = pod(HALF, volumes=[{"name": "data"}], initContainers=[{"name": "first"}])
    before["spec"]["containers"][1]["env"] = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "OWN", "value": "1"},
    ]
    spec = patched(before)["spec"]
    side, main = spec["containers"]
    assert side == {"name": "side", "image": "side"}
    assert [each["name"] for each in main["env"]] == ["OWN", "NVIDIA_VISIBLE_DEVICES"]
    assert main["env"][1]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['pliant/devices']"
    mounts = {each["mountPath"] for each in main["volumeMounts"]}
    assert mounts == {"/opt/pliant", "/run/pliant", "/etc/pliant", "/etc/ld.so.preload"}
    assert [each["name"] for each in spec["initContainers"]] == ["pliant-library", "first"]
    assert spec["initContainers"][0]["image"] == IMAGE
    assert spec["volumes"][0] == {"name": "data"} and len(spec["volumes"]) == 4
    again = patched(before)
    assert patched(again) == again, "once is enough"


def test_where_all_nodes_have_agents_its_limits_are_theirs():
    """The pod mounts a folder by its own name, made only later; it waits for it, not for another pod's."""
    found = patched(pod(HALF), kept=True)
    assert found["metadata"]["annotations"]["pliant/node-agent"] == "true"
    spec, main = found["spec"], found["spec"]["containers"][1]
    (kept,) = [it for it in spec["volumes"] if "hostPath" in it]
    mounts = {it["mountPath"]: it for it in main["volumeMounts"] if it["name"] == kept["name"]}
    assert {path: it["subPathExpr"].partition("/")[2] for path, it in mounts.items()} == {
        "/etc/pliant": "conf",
        "/run/pliant/ledger": "ledger",
    }
    assert mounts["/etc/pliant"]["readOnly"] and not mounts["/run/pliant/ledger"]["readOnly"]
    assert all("emptyDir" not in it or it["name"] == "pliant-library" for it in spec["volumes"])
    (bring,) = spec["initContainers"]
    assert "PLIANT_POD_UID" in {it["name"] for it in bring["env"]}
    assert [it["readOnly"] for it in bring["volumeMounts"] if it["name"] == kept["name"]] == [True]
    assert patched(found, kept=True) == found, "once is enough"


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("worn", [(), ({"name": "pliant-gpu", "emptyDir": {}},)])
def test_what_others_wrote_in_our_name_is_taken_away(kept, worn):
    """Also if the pod looks as if it already had the library."""
    forged = {
        "pliant/gpu-conf": "limit=all",
        "pliant/devices": "any",
        "pliant/node-agent": "no",
        "pliant/a~b": "1",
    }
    found = patched(pod({**HALF, "own": "1", **forged}, volumes=list(worn)), kept=kept)
    mine = {"pliant/node-agent": "true"} if kept else {}
    assert found["metadata"]["annotations"] == {**HALF, "own": "1", **mine}


@pytest.mark.parametrize(
    "about", [pod(), pod(gpus=1), pod(HALF, scheduler="default-scheduler"), pod({"other": "0.5"})]
)
def test_what_asks_for_no_part_here_is_left_as_it_is(about):
    assert asked(about) == {"uid": "7", "allowed": True}


@pytest.mark.parametrize(
    ("notes", "gpus", "said"),
    [
        ({**HALF, "gpu-memory": "2000"}, 0, "contradict each other"),
        (HALF, 1, "asks for nvidia.com/gpu and"),
        ({"gpu-fraction": "1"}, 0, "between 0 and 1"),
        ({"gpu-fraction": "NaN"}, 0, "between 0 and 1"),
        ({"gpu-memory": "-5"}, 0, "MiB or an amount"),
        ({**HALF, "gpu-fraction-limit": "0.4"}, 0, "is no less and at most 1"),
        ({**HALF, "gpu-fraction-limit": "1.5"}, 0, "is no less and at most 1"),
        ({**HALF, "gpu-memory-limit": "9000"}, 0, "gpu-memory-limit goes with gpu-memory"),
        ({"gpu-memory": "2000", "gpu-memory-limit": "1999"}, 0, "goes with gpu-memory and is no less"),
        ({"gpu-memory": "2000", "gpu-memory-limit": "all"}, 0, "goes with gpu-memory and is no less"),
    ],
)
def test_what_nobody_could_give_is_refused(notes, gpus, said):
    response = asked(pod(notes, gpus=gpus))
    assert not response["allowed"] and said in response["status"]["message"]


def test_without_the_image_it_is_refused():
    assert "--share-image IMAGE" in asked(pod(HALF), image="")["status"]["message"]


def answered(method, *parts, path=PATH, admit=admit):
    """Status and body of the answer to a request that is sent in these parts."""
    sent, left = [], list(parts)

    async def receive():
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message):
        sent.append(message)

    async def below(scope, receive, send):
        await send({"type": "below"})

    scope = {"type": "http", "path": path, "method": method}
    asyncio.run(Admission(below, lambda review: admit(review, "pliant", IMAGE))(scope, receive, send))
    return sent[0].get("status"), sent[-1].get("body")


def test_the_way_to_it():
    review = {"apiVersion": "v1", "kind": "AdmissionReview", "request": {"uid": "7", "object": pod(HALF)}}
    body = json.dumps(review).encode()
    status, said = answered("POST", body[:10], body[10:])
    assert status == 200 and json.loads(said)["response"]["allowed"]
    assert answered("GET", b"")[0] == 405
    for broken in (
        b"",
        b"[]",
        b"1",
        b'{"request": null}',
        b'{"request": {"uid": "7"}}',
        b"\xff",
        b"[" * 10**6,
    ):
        assert answered("POST", broken)[0] == 400
    assert answered("POST", b" " * MOST, b" ")[0] == 413
    assert answered("POST", body, path="/healthz") == (None, None)


def test_the_command_wants_https(tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_text("certificate")
    done = CliRunner().invoke(webhook, ["--url", "http://box:1", "--ca", str(ca)])
    assert done.exit_code == 2 and "https" in done.output
