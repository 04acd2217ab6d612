"""What an agent does for the pods that its node's watch reports, in a real folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from pliant.devices.config import GpuConf, Grant, parse, render
from pliant.devices.kept import INSIDE
from pliant.devices.node_look import Looker
from pliant.engines.kube.node_pods import NodePod
from pliant.node_agent import NodeAgent

UUID = "GPU-00000000-0000-4000-8000-000000000001"


def conf(limit=4096, epoch=1):
    return render(GpuConf("w-a/worker-0/1", Path(INSIDE), (Grant(UUID, limit, limit),), epoch))


POD = NodePod("team", "a", "uid-1", True, False, conf(), "team", "w")


class Events:
    """Records the events written to the API server."""

    def __init__(self):
        self.said = []

    def warn(self, pod, reason, text):
        self.said.append((pod.name if pod else "", reason, text))


@pytest.fixture
def events():
    return Events()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "fractions"


@pytest.fixture
def agent(folder):
    folder.mkdir()
    return NodeAgent("n1", folder, Looker(dict, dict, proc=None))


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_a_pod_that_ends_in_between_leaves_nothing(agent, folder, events):
    agent.listed([POD])
    assert names(folder) == ["team_a"]
    agent.changed(False, POD)
    agent.look(events)
    assert names(folder) == [] and events.said == [] and b"team" not in agent.metrics()
    agent.listed([POD, replace(POD, name="b", uid="uid-2")])
    agent.listed([replace(POD, name="b", uid="uid-2")])  # the end of the first was missed
    assert names(folder) == ["team_b"]
    agent.changed(True, replace(POD, name="b", uid="uid-2", over=True))
    assert names(folder) == []


def test_another_agent_goes_on_where_one_was_killed(agent, folder):
    agent.listed([POD, replace(POD, name="b", uid="uid-2")])
    (folder / "team_a" / "ledger").write_text("in use")
    again = NodeAgent("n1", folder, Looker(dict, dict, proc=None))
    again.listed([replace(POD, conf=conf(2048, 2))])
    assert names(folder) == ["team_a"], "what has ended meanwhile is gone"
    assert parse((folder / "team_a" / "conf" / "gpu.conf").read_text()).grants[0].limit == 2048
    assert (folder / "team_a" / "ledger").read_text() == "in use"


def test_an_annotation_that_is_broken_is_told_once_and_changes_nothing(agent, folder, events):
    odd = replace(POD, name="b", uid="uid-2", conf="limit=all")
    agent.listed([POD, odd])
    agent.changed(True, replace(POD, conf=""))
    agent.changed(True, replace(POD, conf="limit=all"))
    for _ in range(3):
        agent.look(events)
    texts = {name: text for name, reason, text in events.said if reason == "GpuLimitsBroken"}
    assert len(events.said) == 2
    assert texts["a"].endswith("the limits of before stay") and texts["b"].endswith("it cannot start")
    assert names(folder) == ["team_a"]
    assert parse((folder / "team_a" / "conf" / "gpu.conf").read_text()).grants[0].limit == 4096
    agent.changed(True, replace(POD, conf=conf(0)))
    agent.look(events)
    agent.changed(True, replace(POD, conf=conf(1024, 2)))
    agent.look(events)
    assert len(events.said) == 2, "somebody who changes it all the time fills nothing"


def test_who_ends_right_after_its_annotation_was_broken_is_told_of(agent, events):
    odd = replace(POD, conf="limit=all")
    agent.changed(True, odd)
    agent.changed(False, odd)
    agent.look(events)
    agent.look(events)
    assert [name for name, *_ in events.said] == ["a"]


def test_a_folder_that_cannot_be_written_for_a_while(agent, folder, events):
    (folder / ".new-team_a").touch()  # in the place of a folder that it makes
    agent.listed([POD])
    agent.look(events)
    assert "its limits cannot be written to /run/pliant-fractions" in events.said[0][2]
    (folder / ".new-team_a").unlink()
    agent.look(events)
    assert names(folder) == ["team_a"] and len(events.said) == 1, "it is tried again"


def test_limits_of_pods_that_are_not_to_have_any(agent, folder):
    """A pod without a server's annotation, and one of another owner."""
    agent.listed([replace(POD, conf=""), replace(POD, uid="uid-2", ours=False, conf="")])
    assert names(folder) == []
