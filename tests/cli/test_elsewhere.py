"""Options of containers and clusters: a note for one without effect, an error for an unsupported one."""

import pytest


@pytest.mark.parametrize("group", ["submit", "training submit", "workspace submit", "submit-mpi"])
def test_what_changes_nothing_is_noted(group, run, fake):
    result = run(
        f"pliant {group} a -i ubuntu -p team-a --host-ipc --cpu-limit 2 -v /data:/data -v /nfs/x:/nfs"
    )
    assert result.code == 0, result.err
    assert result.err == (
        "Note: --host-ipc, --cpu-limit have no effect: jobs run as processes of this machine.\n"
        "Note: /nfs/x is not mounted at /nfs; the job sees it as /nfs/x.\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--mig 1g.5gb", "--mig is not supported: share a GPU with -g 0.5"),
        ("--git-sync source=x", "run `git clone` on the machine, then use --working-dir DIR."),
        ("--pvc name:/data", "use --working-dir DIR."),
        ("--extended-resource a=1", "request GPUs with -g"),
        ("-v /data", "-v /data: expected SOURCE:TARGET, as in -v /data:/data."),
        ("-v /data:data", "-v /data:data: expected SOURCE:TARGET"),
    ],
)
def test_what_cannot_be_had_is_refused(words, said, run, fake):
    result = run(f"pliant submit a -i ubuntu -p team-a {words}")
    assert (result.code, said in result.err, fake.requests) == (2, True, []), result.err


def test_a_notebook(run, fake):
    result = run("pliant submit note --jupyter -g 1 -p team-a")
    assert result.code == 0, result.err
    spec = fake.last.body["spec"]
    [variable] = spec["environmentVariables"]
    assert fake.last.path == "/api/v1/workloads/workspaces"
    assert (spec["image"], spec["exposedUrls"]) == ("jupyter/scipy-notebook", [{"container": 8888}])
    assert variable["name"] == "JUPYTER_TOKEN"
    assert f"Jupyter is at http://localhost:8888/?token={variable['value']}\n" in result.err


def test_a_notebook_has_its_own_port(run, fake):
    result = run("pliant submit note --jupyter -p team-a --service-type nodeport --port 80")
    assert (result.code, fake.requests) == (2, [])
    assert "--jupyter excludes --inference, --service-type and --port." in result.err
