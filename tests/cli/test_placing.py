"""Options for where work may run, in both editions: what they send, and what is refused at once."""

import pytest

HOST = "kubernetes.io/hostname"


def only(*terms):
    return {"nodeAffinityRequired": {"nodeSelectorTerms": [{"matchExpressions": list(terms)}]}}


def term(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


SENT = [
    (
        "--node-affinity 'gpu in (h100, a100),!old' --node-affinity memory>40",
        only(term("gpu", "In", "h100", "a100"), term("old", "DoesNotExist"), term("memory", "Gt", "40")),
    ),
    (
        "--node-affinity 'a=b,c==d,e!=f,g notin (h),i,j<5'",
        only(
            term("a", "In", "b"),
            term("c", "In", "d"),
            term("e", "NotIn", "f"),
            term("g", "NotIn", "h"),
            term("i", "Exists"),
            term("j", "Lt", "5"),
        ),
    ),
    ("--exclude-node n1 --exclude-node n2,n3", only(term(HOST, "NotIn", "n1", "n2", "n3"))),
    (
        "--prefer-node 50:fast --prefer-node example.com/rack=r1",
        {
            "nodeAffinityPreferred": [
                {"weight": 50, "matchExpressions": [term("fast", "Exists")]},
                {"weight": 1, "matchExpressions": [term("example.com/rack", "In", "r1")]},
            ]
        },
    ),
    (
        "--toleration operator=Equal,key=spot,value=yes,effect=NoSchedule --toleration key=x,seconds=60",
        {
            "tolerations": [
                {"operator": "Equal", "key": "spot", "value": "yes", "effect": "NoSchedule"},
                {"operator": "Exists", "key": "x", "seconds": 60},
            ]
        },
    ),
    ("--anti-affinity rack", {"podAntiAffinity": {"type": "Required", "key": "rack"}}),
    (
        "--topology room --required-topology zone --preferred-topology rack",
        {"topology": {"name": "room", "requiredPlacement": "zone", "preferredPlacement": "rack"}},
    ),
    ("--preferred-pod-topology-key rack", {"topology": {"preferredPlacement": "rack"}}),
    (
        "--preemption-delay 90s --max-runtime 2h --stale-grace never",
        {"preemptionDelaySeconds": 90, "maxRuntimeSeconds": 7200, "staleGraceSeconds": -1},
    ),
]


@pytest.mark.parametrize("group", ["submit", "training submit", "training pytorch submit", "submit-mpi"])
def test_each_submit_takes_them(group, run, fake):
    result = run(f"pliant {group} a -i ubuntu -p team-a --exclude-node n1 --toleration key=spot")
    assert result.code == 0, result.err
    spec = fake.last.body["spec"]
    assert spec["tolerations"] == [{"operator": "Exists", "key": "spot"}]
    assert only(term(HOST, "NotIn", "n1"))["nodeAffinityRequired"] == spec["nodeAffinityRequired"]


@pytest.mark.parametrize(("words", "made"), SENT, ids=[words for words, _ in SENT])
def test_what_is_sent(words, made, run, fake):
    result = run(f"pliant training submit a -i ubuntu -p team-a {words}")
    assert result.code == 0, result.err
    assert {name: fake.last.body["spec"][name] for name in made} == made


def test_a_node_each(run, fake):
    result = run("pliant training pytorch submit a -i ubuntu -p team-a --workers 2 --anti-affinity")
    assert result.code == 0, result.err
    assert fake.last.body["spec"]["podAntiAffinity"] == {"type": "Required", "key": HOST}


WRONG = [
    ("--node-affinity 'a b'", "--node-affinity a b: 'a b' is not valid: use KEY=VALUE, KEY!=VALUE"),
    ("--node-affinity ''", "'' is not valid: use KEY=VALUE"),
    ("--node-affinity a=b,,c", "'' is not valid: use KEY=VALUE"),
    ("--toleration spot", "--toleration spot: 'spot' is invalid; use the fields operator, key, value"),
    ("--toleration key=a,seconds=soon", "seconds is a whole number."),
    ("--max-runtime long", "--max-runtime long: not a time"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[words for words, _ in WRONG])
def test_what_is_wrong_is_said_at_once(words, said, run, fake):
    result = run(f"pliant training submit a -i ubuntu -p team-a {words}")
    assert (result.code, said in result.err, fake.requests) == (2, True, []), result.err
