"""The meaning of images on a machine without a container engine."""

import os
import sys

import pytest

from pliant.engines.local.images.catalogue import Catalogue, CatalogueError, bare
from pliant.model.workload import Launch

QUICKSTART = (sys.executable, "-m", "pliant.engines.local.images.quickstart")


@pytest.fixture
def catalogue(tmp_path):
    return Catalogue(tmp_path / "images.yaml")


def write(catalogue_file, text):
    before = catalogue_file.stat().st_mtime_ns if catalogue_file.exists() else 0
    catalogue_file.write_text(text)
    os.utime(catalogue_file, ns=(before + 1_000_000, before + 1_000_000))


@pytest.mark.parametrize(
    "image",
    [
        "gcr.io/run-ai-demo/quickstart",
        "gcr.io/run-ai-demo/quickstart:latest",
        "runai.jfrog.io/demo/quickstart:v2@sha256:" + "0" * 64,
    ],
)
def test_the_quickstart_is_built_in_with_any_tag(catalogue, image):
    assert catalogue.resolve(Launch(image))[1] == QUICKSTART
    assert catalogue.resolve(Launch(image, args=("--help",)))[1] == (*QUICKSTART, "--help")
    assert catalogue.resolve(Launch(image, command=("sleep",), args=("1",)))[1] == ("sleep", "1")
    assert catalogue.notice(Launch(image)) is None


@pytest.mark.parametrize("last", ["distributed", "hpo"])
@pytest.mark.parametrize("place", ["gcr.io/run-ai-demo", "runai.jfrog.io/demo"])
def test_its_relatives_are_built_in(catalogue, place, last):
    entry, argv = catalogue.resolve(Launch(f"{place}/quickstart-{last}:v0.3.0"))
    assert argv == (sys.executable, "-m", f"pliant.engines.local.images.{last}")
    assert entry.known and dict(entry.env)["PYTHONPATH"].endswith(f"images/{last}")
    with pytest.raises(CatalogueError):
        catalogue.resolve(Launch(f"example.com/quickstart-{last}"))


def test_elasticdl_is_our_own_runner(catalogue):
    entry, argv = catalogue.resolve(Launch("elasticdl", args=("master", "--job_name=j")))
    assert entry.known
    assert argv == (sys.executable, "-m", "pliant.train.elasticdl", "master", "--job_name=j")


def test_a_notebook_is_the_machines_own(catalogue, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CatalogueError, match="which is not installed: pip install jupyterlab"):
        catalogue.resolve(Launch("jupyter/scipy-notebook"))
    (tmp_path / "jupyter").write_text("#!/bin/sh\n")
    (tmp_path / "jupyter").chmod(0o700)
    argv = catalogue.resolve(Launch("jupyter/scipy-notebook:latest", args=("--ServerApp.token=x",)))[1]
    assert argv[:2] == ("sh", "-c") and "jupyter lab" in argv[2]
    assert argv[3:] == ("jupyter", "--ServerApp.token=x")


@pytest.mark.parametrize("image", ["python", "python:3.11-slim", "docker.io/library/python:3"])
def test_python_is_our_own(catalogue, image):
    assert catalogue.resolve(Launch(image, args=("-c", "1")))[1] == (sys.executable, "-c", "1")


@pytest.mark.parametrize("image", ["ubuntu", "ubuntu:24.04", "library/debian", "docker.io/library/busybox"])
def test_systems_are_this_machine(catalogue, image):
    entry, argv = catalogue.resolve(Launch(image))
    assert argv in (("bash",), ("sh",)) and entry.known
    assert catalogue.notice(Launch(image, command=("ls",))) is None


@pytest.mark.parametrize("image", ["ubuntu", "python"])
def test_arguments_are_the_command_where_there_is_no_entry_point(catalogue, image):
    """As in containers of such images: `submit -i ubuntu -- sleep infinity`."""
    assert catalogue.resolve(Launch(image, args=("sleep", "infinity")))[1] == ("sleep", "infinity")
    options = catalogue.resolve(Launch(image, args=("-c", "1")))[1]
    assert options[0] in ("bash", "sh", sys.executable) and options[1:] == ("-c", "1")


def test_an_unknown_image_runs_its_command_here_after_a_notice(catalogue, tmp_path):
    launch = Launch("registry:5000/team/train:7", command=("python", "train.py"))
    assert catalogue.resolve(launch)[1] == ("python", "train.py")
    notice = catalogue.notice(launch)
    assert "registry:5000/team/train:7" in notice and "runs on this machine" in notice
    assert str(tmp_path / "images.yaml") in notice


@pytest.mark.parametrize("args", [(), ("--epochs", "3")])
def test_an_unknown_image_without_a_command_is_refused_with_what_to_do(catalogue, tmp_path, args):
    launch = Launch("team/train", args=args)
    with pytest.raises(CatalogueError) as caught:
        catalogue.resolve(launch)
    for part in ("image team/train is unknown", "--command", "ubuntu", str(tmp_path / "images.yaml")):
        assert part in str(caught.value)
    assert catalogue.notice(launch) is None


def test_users_add_entries_and_change_them_while_the_server_runs(catalogue, tmp_path):
    file = tmp_path / "images.yaml"
    write(file, "team/train:\n  command: [python, train.py]\n  env: {EPOCHS: 3}\n  workdir: /data\n")
    entry, argv = catalogue.resolve(Launch("team/train:7", args=("--fast",)))
    assert argv == ("python", "train.py", "--fast")
    assert entry.env == (("EPOCHS", "3"),) and entry.workdir == "/data"
    assert catalogue.notice(Launch("team/train:7")) is None
    write(file, "team/train:\n  command: [one]\nteam/train:7:\n  command: [two]\nubuntu:\n  command: [zsh]\n")
    assert catalogue.resolve(Launch("team/train:7"))[1] == ("two",), "the exact image goes first"
    assert catalogue.resolve(Launch("team/train:8"))[1] == ("one",)
    assert catalogue.resolve(Launch("ubuntu"))[1] == ("zsh",), "theirs before ours"
    file.unlink()
    with pytest.raises(CatalogueError):
        catalogue.resolve(Launch("team/train:7"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no YAML"),
        ("- a\n", "it must map images to"),
        ("team/train: python\n", "team/train: must have command, env or workdir"),
        ("team/train: {cmd: [a]}\n", "team/train: must have command, env or workdir"),
        ("team/train: {command: python train.py}\n", "team/train: command must be a list"),
        ("team/train: {env: [A=1]}\n", "team/train: env must be a mapping"),
    ],
)
def test_a_broken_file_is_named_and_spares_what_is_built_in(catalogue, tmp_path, text, why):
    write(tmp_path / "images.yaml", text)
    with pytest.raises(CatalogueError) as caught:
        catalogue.resolve(Launch("team/train", command=("a",)))
    assert str(tmp_path / "images.yaml") in str(caught.value) and why in str(caught.value)
    assert catalogue.resolve(Launch("gcr.io/run-ai-demo/quickstart"))[1] == QUICKSTART


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("ubuntu", "ubuntu"),
        ("ubuntu:24.04", "ubuntu"),
        ("host:5000/a/b", "host:5000/a/b"),
        ("host:5000/a/b:1@sha256:ff", "host:5000/a/b"),
    ],
)
def test_names_without_tags(image, name):
    assert bare(image) == name
