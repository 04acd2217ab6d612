"""Removes each right of the chart's role: the API server refuses what needs it, the server reports that, and
`pliant doctor --kube` names that right and no other.
"""

import shlex
from contextlib import contextmanager

import pytest

from pliant.engines.kube.apiserver.connection import Connection
from pliant.engines.kube.rights import examine
from tests.kubernetes.control_plane import until
from tests.kubernetes.installed import ACCOUNT, MADE, OPENS, a_release, add_owner, add_pod
from tests.kubernetes.release import NAME
from tests.kubernetes.test_chart import granted, wanted
from tests.kubernetes.test_installed import BESIDE

ROLE = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
PLACE = "namespaces/runai-team-a/"
PODS = f"/api/v1/{PLACE}pods"
KINDS = ("departments", "projects", "nodepools", "workloads")
JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}
MUCH = {"limits": {"nvidia.com/gpu": "9"}}
SUBMIT = "runai submit {} -i forever -g 0 -p team-a"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAME}/leases"


class Play:
    """A server of the release, whose rights are removed and restored."""

    def __init__(self, installed):
        self.installed, self.plane = installed, installed.plane
        self.typed, self.run = installed.typed, installed.stage.run
        self.rules = self.plane.request("GET", ROLE)["rules"]
        self.count, self.said = 0, ""
        self.connection = Connection(installed.kubeconfig)

    def name(self):
        self.count += 1
        return f"x{self.count}"

    def begin(self):
        self.server = self.installed.begin("pliant-0")

    def leads(self):
        """Waits until it leads: the label on its pod may be left from its earlier process."""
        until(lambda: self.run("pliant list").code == 0, f"it leads: {self.server.log}")

    def end(self):
        self.server.process.kill()
        self.server.process.wait(60)

    def tries(self, command):
        """Tries a command; counts its output as the product's."""
        self.said += self.run(command).said

    def phase(self, name):
        body = self.plane.get(f"/apis/pliant.dev/v1alpha1/{PLACE}workloads/{name}") or {}
        return body.get("status", {}).get("phase")

    def runs(self, more=""):
        """Submits a workload and waits until it runs."""
        name = self.name()
        self.typed(f"{SUBMIT.format(name)} {more}")
        until(lambda: self.phase(name) == "Running", f"{name} runs")
        return name

    @contextmanager
    def without(self, keys):
        """Removes rights from the role within the block, and waits until the API server applies it."""
        rules = [
            {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
            for group, resource, verb in sorted(granted(self.rules) - set(keys))
        ]
        self.plane.request("PATCH", ROLE, {"rules": rules})
        until(lambda: not any(map(self.may, keys)), f"{keys} is taken away")
        try:
            yield
        finally:
            self.plane.request("PATCH", ROLE, {"rules": self.rules})
            until(lambda: all(map(self.may, keys)), f"{keys} is back")

    def may(self, key):
        group, resource, verb = key
        resource, _, part = resource.partition("/")
        about = {"group": group, "resource": resource, "verb": verb, "subresource": part}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        body["spec"] = {"user": ACCOUNT, "resourceAttributes": about}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return self.plane.request("POST", path, body)["status"]["allowed"]

    def doctor(self):
        """The rights that `pliant doctor --kube` reports missing."""
        findings = examine(self.connection.client)
        return {it.what for it in findings if not it.holds and it.what.startswith("right ")}

    def refused(self):
        return [key for key, code, _ in self.installed.asked() if code == 403]

    def heard(self, since):
        """All that the server has reported since then: its log, answers, and why the last workload waits."""
        why = self.run(f"pliant why x{self.count} -p team-a").said
        return self.server.log.read_text()[since:] + self.said + why


# ---- what needs which right: each begins with all rights, and continues after `yield` without one ----


def submits(play, more=""):
    name = play.name()
    yield
    play.tries(f"{SUBMIT.format(name)} {more}")
    yield
    play.tries(f"runai delete {name} -p team-a")


def submits_with_variables(play):
    return submits(play, "-e GREETING=hello")


def distributed(play):
    name = play.name()
    yield
    play.tries(f"runai training pytorch submit {name} --workers 1 -i forever -g 0 -p team-a -c -- sleep 9")
    yield
    play.tries(f"runai delete {name} -p team-a")


def submits_where_no_namespace_is(play):
    name = play.name()
    play.typed(f"pliant project create {name} --quota 1")
    yield
    play.tries(f"runai submit {name} -i forever -g 0 -p {name}")
    yield
    play.tries(f"runai delete {name} -p {name}")


def typed_at(command):
    def words(play):
        name = play.runs()
        yield
        play.tries(command.format(name))
        yield
        play.tries(f"runai delete {name} -p team-a")

    return words


def opens(play):
    yield from typed_at(f"python -c {shlex.quote(OPENS)}")(play)


def resumes(play):
    name = play.runs("-e GREETING=hello")
    play.typed(f"runai suspend {name} -p team-a")
    until(lambda: play.phase(name) == "Stopped", "it has stopped")
    yield
    play.tries(f"runai resume {name} -p team-a")
    yield
    play.tries(f"runai delete {name} -p team-a")


def deletes(play):
    name = play.runs("-e GREETING=hello")
    yield
    play.tries(f"runai delete {name} -p team-a")
    yield


def deletes_distributed(play):
    name = play.name()
    play.typed(f"runai training pytorch submit {name} --workers 1 -i forever -g 0 -p team-a -c -- sleep 9")
    until(lambda: play.phase(name) == "Running", "both run")
    yield
    play.tries(f"runai delete {name} -p team-a")
    yield


def foreign(play, name="", spec=None, **metadata):
    """A waiting pod of others: it asks for more than any node has."""
    name = name or play.name()
    yield
    add_pod(play.plane, PODS, name, MUCH, spec, **metadata)
    yield
    play.plane.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def odd(play):
    return foreign(play, labels={"pliant/project": "another"})


def plugin(play):
    return foreign(play, labels={"scheduling.x-k8s.io/pod-group": "none"})


def upstream(play):
    return foreign(play, spec={"schedulingGroup": {"podGroupName": "none"}})


def owned(version, kind, plural):
    def made(play):
        path = f"/apis/{version}/{PLACE}{plural}"
        owner = add_owner(play.plane, version, kind, plural, JOB if kind == "Job" else {})
        labels = {"ray.io/group": "headgroup"} if kind == "RayCluster" else {}
        yield from foreign(play, labels=labels, ownerReferences=[owner])
        play.plane.request("DELETE", f"{path}/o")

    return made


def leader(play):
    """The leader of a LeaderWorkerSet, whose other pods a StatefulSet makes."""
    owner = add_owner(play.plane, *MADE[-1], {})
    template = {"metadata": {"labels": {"a": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"serviceName": "a", "selector": {"matchLabels": {"a": "a"}}, "template": template}
    between = add_owner(play.plane, "apps/v1", "StatefulSet", "statefulsets", spec, owner)
    labels = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    yield from foreign(play, labels=labels, ownerReferences=[between])
    for api, plural in (("apps/v1", "statefulsets"), (MADE[-1][0], "leaderworkersets")):
        play.plane.request("DELETE", f"/apis/{api}/{PLACE}{plural}/o")


def begins(play):
    """Starts another process of the server without a right, and a healthy one afterwards."""
    play.end()
    yield
    play.begin()
    yield
    play.end()
    play.begin()
    play.leads()


def begins_without_its_lease(play):
    for lease in play.plane.request("GET", LEASES)["items"]:
        play.plane.request("DELETE", f"{LEASES}/{lease['metadata']['name']}")
    return begins(play)


def shows(kind, more=""):
    """The server shows what it makes as an object."""

    def made(play):
        name = play.name()
        yield
        play.tries(f"pliant {kind} create {name} {more}")
        yield
        play.tries(f"pliant {kind} delete {name}{'' if kind == 'nodepool' else ' --yes'}")

    return made


def hides(kind, more=""):
    def gone(play):
        name = play.name()
        play.typed(f"pliant {kind} create {name} {more}")
        path = f"/apis/pliant.dev/v1alpha1/{kind}s/{name}"
        until(lambda: (play.plane.get(path) or {}).get("status"), "it shows")
        yield
        play.tries(f"pliant {kind} delete {name}{'' if kind == 'nodepool' else ' --yes'}")
        yield

    return gone


def applied(kind, spec, where=""):
    """An object that kubectl applies: the server puts a finalizer on it."""

    def made(play):
        name = play.name()
        metadata = {"name": name, **({"namespace": "runai-team-a"} if where else {})}
        body = {"apiVersion": "pliant.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
        yield
        play.plane.request("POST", f"/apis/pliant.dev/v1alpha1/{where}{kind.lower()}s", body)
        yield

    return made


def needed():
    """(group, resource, verb) -> what needs it."""
    found = {
        ("", "pods", "create"): submits,
        ("", "pods/binding", "create"): submits,
        ("", "pods", "get"): typed_at("pliant resize {} -p team-a --cpu 2"),
        ("", "pods/resize", "patch"): typed_at("pliant resize {} -p team-a --cpu 3"),
        ("", "pods/eviction", "create"): typed_at("runai suspend {} -p team-a"),
        ("", "pods/log", "get"): typed_at("runai logs {} -p team-a"),
        ("", "pods/status", "patch"): foreign,
        ("", "namespaces", "get"): shows("project", "--quota 1"),
        ("", "namespaces", "create"): submits_where_no_namespace_is,
        ("", "secrets", "create"): submits_with_variables,
        ("", "secrets", "get"): submits_with_variables,
        ("", "secrets", "update"): resumes,
        ("", "secrets", "list"): deletes,
        ("", "secrets", "delete"): deletes,
        ("", "services", "create"): distributed,
        ("", "services", "delete"): deletes_distributed,
        ("", "events", "create"): odd,
        ("coordination.k8s.io", "leases", "create"): begins_without_its_lease,
        ("scheduling.x-k8s.io", "podgroups", "get"): plugin,
        ("scheduling.k8s.io", "podgroups", "get"): upstream,
        ("apps", "statefulsets", "get"): leader,
        ("pliant.dev", "workloads", "create"): submits,
        ("pliant.dev", "workloads", "delete"): typed_at("runai delete {} -p team-a"),
        ("pliant.dev", "workloads/status", "patch"): submits,
        ("pliant.dev", "workloads", "patch"): applied("Workload", {"image": "forever"}, PLACE),
        ("pliant.dev", "departments", "patch"): applied("Department", {}),
        ("pliant.dev", "projects", "patch"): applied("Project", {}),
        ("pliant.dev", "nodepools", "patch"): applied("NodePool", {"labelKey": "k", "labelValue": "w"}),
    }
    for verb in ("get", "create"):
        found["", "pods/exec", verb] = typed_at("runai exec {} -p team-a -- true")
        found["", "pods/portforward", verb] = opens
    found |= {("", "pods", verb): begins for verb in ("list", "watch", "patch")}
    found |= {("", "nodes", verb): begins for verb in ("list", "watch")}
    found |= {("coordination.k8s.io", "leases", verb): begins for verb in ("get", "update")}
    found |= {("scheduling.k8s.io", "priorityclasses", verb): begins for verb in ("list", "watch")}
    found |= {("resource.k8s.io", "resourceclaims", verb): begins for verb in ("list", "watch")}
    for version, kind, plural in MADE:
        group = version.partition("/")[0]
        found[group, plural, "get"] = leader if kind == "LeaderWorkerSet" else owned(version, kind, plural)
    for kinds in KINDS:
        found |= {("pliant.dev", kinds, verb): begins for verb in ("list", "watch")}
    for kind, more in (("department", "--quota 1"), ("project", "--quota 1"), ("nodepool", "--label k=v")):
        found["pliant.dev", f"{kind}s", "create"] = shows(kind, more)
        found["pliant.dev", f"{kind}s/status", "patch"] = shows(kind, more)
        found["pliant.dev", f"{kind}s", "delete"] = hides(kind, more)
    return found


def test_something_is_known_that_needs_each_right():
    assert set(needed()) == wanted()


SESSION = "the server lacks the right"
TOLD = {
    "watch": "they may not be watched",
    ("", "namespaces", "create"): "may not be created by this server",
    ("resource.k8s.io", "resourceclaims", "list"): "they may not be watched",
    **{("", f"pods/{part}", verb): SESSION for part in ("exec", "portforward") for verb in ("get", "create")},
}
"""Key or verb -> the server's words, where it does not repeat the API server's."""


def of(group, resource):
    return f"right {resource}{'.' + group if group else ''}"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_without_a_right_what_needs_it_is_refused_and_told(tmp_path):
    """Tries each right in turn, and reports all failures together."""
    wrong = []
    with a_release(tmp_path) as installed:
        play = Play(installed)
        play.begin()
        play.leads()
        play.typed("pliant project create team-a --quota 2")
        play.runs()
        assert play.doctor() == set()
        for key, action in sorted(needed().items(), key=lambda it: it[0]):
            try:
                take(play, key, action)
            except AssertionError as error:
                wrong.append(f"{key}: {error}")
            print(wrong[-1] if wrong and wrong[-1].startswith(str(key)) else key, flush=True)
        play.connection.close()
    assert wrong == []


def take(play, key, action):
    group, resource, verb = key
    steps = action(play)
    next(steps)
    shown = (group, resource, "get") if key in BESIDE else key
    before, play.said = play.refused().count(shown), ""
    since = len(play.server.log.read_text()) if play.server.log.exists() else 0
    try:
        with play.without([key]):
            assert play.doctor() == {of(group, resource)}
            next(steps)
            until(lambda: play.refused().count(shown) > before, f"{verb} {resource} is refused", seconds=40)
            words = TOLD.get(key) or TOLD.get(verb) or f'cannot {verb} resource "{resource}"'
            until(lambda: words in play.heard(since), f"somebody is told: {words}", seconds=40)
    finally:
        next(steps, None)
