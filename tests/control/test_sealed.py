"""Values of environment variables are in no row and no bundle; without them a workload is held."""

from pathlib import Path

import pytest

from pliant.control.errors import BadRequest, NameTaken
from pliant.control.submit.submission import Submission
from pliant.control.submit.variables import Variables
from pliant.model.workload import Launch
from pliant.store.bundle import bundle
from tests.control.stage import Stage

SECRET = "S3CR3T-value"


def submit(stage: Stage) -> str:
    own = Variables((("TOKEN", SECRET),), (("CAPTURED", SECRET),), whole=True)
    ask = Submission("default", Launch("ubuntu", ("true",)), name="job", gpus=1000, variables=own)
    return stage.accept(ask).id


def test_the_store_and_the_bundle_have_names_only(stage: Stage, tmp_path: Path) -> None:
    job = submit(stage)
    stage.run(1000)
    launch = stage.view(job).workload.launch
    assert (launch.variables, launch.captured) == (("TOKEN",), ("CAPTURED",))
    assert SECRET.encode() not in bundle(stage.loop, stage.store, tmp_path / "none")
    stage.store.close()
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in repr(Variables((("TOKEN", SECRET),)))


def test_a_workload_without_its_values_is_held_until_they_are_back(stage: Stage) -> None:
    blocker = stage.submit("blocker", 2)
    job = submit(stage)
    kept = stage.machines.sealed.pop(job)
    stage.reopen()
    stage.service.delete(blocker, "me")
    stage.run(60_000)
    view = stage.view(job)
    assert (view.workload.held, view.reason.code if view.reason else "") == ("environment-lost",) * 2
    assert view.tasks[0].attempt == 0
    stage.machines.sealed[job] = kept
    stage.reopen()
    stage.run(1000)
    assert stage.phase(job) == "Running" and not stage.view(job).workload.held


def test_a_submission_that_is_refused_leaves_nothing(stage: Stage) -> None:
    submit(stage)
    with pytest.raises(NameTaken):
        submit(stage)
    assert len(stage.machines.sealed) == 1


def test_what_was_sealed_and_never_recorded_goes_at_the_next_start(stage: Stage) -> None:
    job = submit(stage)
    stage.machines.sealed["never-recorded"] = {"": Variables()}
    stage.reopen()
    assert list(stage.machines.sealed) == [job]


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_a_name_that_no_environment_can_hold(stage: Stage, name: str) -> None:
    ask = Submission("default", Launch("ubuntu"), variables=Variables(((name, "1"),)))
    with pytest.raises(BadRequest, match="cannot be the name"):
        stage.accept(ask)


def test_an_environment_has_128_kib_at_most(stage: Stage) -> None:
    def ask(size: int) -> Submission:
        captured = (("A B", "x" * size),)  # a name with a space is allowed
        return Submission("default", Launch("ubuntu"), name=f"j{size}", variables=Variables((), captured))

    stage.accept(ask(128 * 1024 - 5))
    with pytest.raises(BadRequest, match="The environment is 2048 KiB; at most 128 KiB can be captured"):
        stage.accept(ask(2 * 2**20))
    with pytest.raises(BadRequest, match="128 KiB"):
        stage.accept(ask(128 * 1024 - 4))
