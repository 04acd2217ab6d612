"""The Helm chart: what it installs, and that it grants the rights that the server uses and no others."""

import json
import subprocess
from contextlib import suppress

import pytest
import yaml
from click.testing import CliRunner

from pliant.api.admission import PATH
from pliant.cli.cluster.webhook import webhook
from pliant.engines.kube.fractions.agents import FOLDER
from pliant.engines.kube.rights import AGENT_RIGHTS, RIGHTS
from tests.kubernetes.control_plane import ROOT, Answered, helm, until
from tests.kubernetes.release import CHART, run

GIVEN = ("--set=image.repository=registry.example/pliant", "--set=database.url=postgresql://pliant@db/pliant")
AGENT = "--set=nodeAgent.enabled=true"
ALL = ("--set=serviceMonitor.enabled=true", "--set=dashboards.enabled=true", AGENT)


def rendered(*more):
    words = (
        "template",
        "pliant",
        str(CHART),
        "--namespace=pliant",
        "--kube-version=1.36.1",
        "--include-crds",
    )
    code, text = run(*words, *GIVEN, *more)
    assert code == 0, text
    return text


def documents(*more):
    return [each for each in yaml.safe_load_all(rendered(*more)) if each]


def granted(rules):
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def wanted(rights=RIGHTS):
    return {(right.group, right.resource, verb) for right in rights for verb in right.verbs}


def role(name="pliant"):
    found = documents(AGENT)
    return next(each for each in found if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name)


def test_it_passes_lint():
    code, said = run("lint", "--strict", str(CHART), *GIVEN)
    assert code == 0, said


def test_its_webhook_is_asked_what_that_of_a_server_outside_is_asked(tmp_path):
    def asked(configuration):
        (hook,) = configuration["webhooks"]
        client = hook.pop("clientConfig")
        assert client["caBundle"]
        return hook, client

    texts = documents()
    inside, client = asked(next(it for it in texts if it["kind"] == "MutatingWebhookConfiguration"))
    assert client["service"] == {"name": "pliant", "namespace": "pliant", "port": 443, "path": PATH}
    secret = next(it for it in texts if it.get("type") == "kubernetes.io/tls")
    assert client["caBundle"] == secret["data"]["ca.crt"]
    ca = tmp_path / "ca.crt"
    ca.write_text("certificate")
    account = "system:serviceaccount:pliant:pliant"
    done = CliRunner().invoke(webhook, ["--url", "https://box:1/", "--ca", str(ca), "--account", account])
    asks, policy, bound = yaml.safe_load_all(done.output)
    outside, client = asked(asks)
    assert client["url"] == f"https://box:1{PATH}" and outside == inside
    mine = {it["kind"]: it["spec"] for it in texts if it["kind"].startswith("ValidatingAdmissionPolicy")}
    assert mine[policy["kind"]] == policy["spec"]
    assert set(mine) == {policy["kind"], bound["kind"]}
    old = subprocess.run(
        [helm(), "template", "pliant", str(CHART), "--kube-version=1.29.0", *GIVEN],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "ValidatingAdmissionPolicy" not in old.stdout, "1.29 has none"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("database.url=postgresql://pliant:hunter2@db/pliant", "database"),
        ("database.url=mysql://db/pliant", "database"),
        ("replicas=0", "replicas"),
        ("replica=2", "replica"),
        ("image.repository=", "repository"),
    ],
)
def test_values_that_cannot_be_meant(value, said):
    code, text = run("template", "pliant", str(CHART), "--kube-version=1.36.1", *GIVEN, f"--set={value}")
    assert code != 0 and said in text


def test_what_it_carries_is_what_the_server_has():
    crds = ROOT / "src" / "pliant" / "engines" / "kube" / "crds"
    names = sorted(each.name for each in crds.iterdir())
    assert sorted(each.name for each in (CHART / "crds").iterdir()) == names
    for name in names:
        assert (CHART / "crds" / name).read_bytes() == (crds / name).read_bytes(), f"copy {name} again"
    board = ROOT / "docs" / "guide" / "grafana.json"
    assert (CHART / "dashboards" / "pliant.json").read_bytes() == board.read_bytes(), "copy it again"


def test_it_grants_what_the_server_uses_and_nothing_else():
    rules = granted(role()["rules"])
    assert rules == wanted()
    assert not any("*" in part for rule in rules for part in rule)


def test_its_pods_are_closed_and_know_no_secret_in_their_arguments():
    deployment = next(each for each in documents() if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 2 and pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        closed = container["securityContext"]
        assert closed["readOnlyRootFilesystem"] and not closed["allowPrivilegeEscalation"]
    secrets = next(each for each in documents() if each["metadata"]["name"] == "pliant-auth")
    text = json.dumps(pod)
    assert not any(value in text for value in secrets["data"].values())


def test_the_agent_of_a_node_may_read_pods_write_events_and_has_no_capability():
    """test_installed.py tests that it uses these rights and no others."""
    assert not any(each["kind"] == "DaemonSet" for each in documents())
    assert granted(role("pliant-node")["rules"]) == wanted(AGENT_RIGHTS)
    (made,) = [each for each in documents(AGENT) if each["kind"] == "DaemonSet"]
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    closed = container["securityContext"]
    assert closed["capabilities"] == {"drop": ["ALL"]} and closed["readOnlyRootFilesystem"]
    assert not closed["allowPrivilegeEscalation"] and "privileged" not in closed
    assert [each["hostPath"]["path"] for each in pod["volumes"]] == [FOLDER]
    assert pod["hostPID"] and "--audit" in container["args"] and "hostNetwork" not in pod
    (plain,) = [
        each for each in documents(AGENT, "--set=nodeAgent.audit=false") if each["kind"] == "DaemonSet"
    ]
    pod = plain["spec"]["template"]["spec"]
    assert not pod["hostPID"] and "--audit" not in pod["containers"][0]["args"]
    service = next(each for each in documents(AGENT) if each["kind"] == "Service")
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= labels.items(), "it is no server"


def test_secrets_that_are_there_are_used():
    more = (
        "--set=auth.existingSecret=mine",
        "--set=tls.existingSecret=cert",
        "--set=database.existingSecret=pg",
    )
    found = documents(*more)
    assert not any(each["kind"] == "Secret" for each in found)
    text = json.dumps(found)
    assert '"secretName": "mine"' in text and '"secretName": "cert"' in text and '"name": "pg"' in text


def test_the_api_server_takes_all_of_it(plane):
    define(plane, "monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors")
    define(plane, "monitoring.coreos.com", "v1", "PodMonitor", "podmonitors")
    define(plane, "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
    if plane.get("/api/v1/namespaces/pliant") is None:
        plane.add_namespace("pliant")
    words = [str(plane.pieces / "kubectl"), f"--kubeconfig={plane.kubeconfig}", "apply", "--dry-run=server"]
    done = subprocess.run(
        [*words, "-f", "-"], input=rendered(*ALL), check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    kinds = [line.split("/")[0] for line in done.stdout.splitlines()]
    assert kinds.count("customresourcedefinition.apiextensions.k8s.io") == 4
    monitors = {"servicemonitor.monitoring.coreos.com", "podmonitor.monitoring.coreos.com"}
    assert {"deployment.apps", "daemonset.apps", "poddisruptionbudget.policy"} | monitors <= set(kinds)
    assert done.stdout.count("(server dry run)") == len(kinds)


def define(plane, group, version, kind, plural):
    """Defines the minimum of a custom resource that the API server needs to store objects."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": loose}}]
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with suppress(Answered):  # another test has defined it already
        plane.request("POST", path, {**body, "metadata": {"name": f"{plural}.{group}"}})
    until(lambda: plane.get(f"/apis/{group}/{version}") is not None, f"{kind} is known")
