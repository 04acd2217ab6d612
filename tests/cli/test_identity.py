"""login, logout, whoami, tokens, versions; and what is stored between commands."""

import json
import os
import stat

from pliant import __version__
from tests.cli.fake import TOKEN
from tests.cli.items import workload


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_login_to_another_server_is_remembered(fake, run, monkeypatch, tmp_path):
    monkeypatch.delenv("PLIANT_SERVER")
    monkeypatch.delenv("PLIANT_TOKEN")
    assert run(f"pliant --server {fake.url} login --token {TOKEN}") == (
        0,
        f"Logged in as yaron at {fake.url}\n",
        "",
    )
    assert mode(tmp_path / "credentials.json") == 0o600
    assert run("pliant whoami").out == "User: yaron\nLogged in Id: local:1000\n"
    run("pliant project set team-a")
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "projects": {fake.url: "team-a"},
        "server": fake.url,
    }
    assert run("pliant logout").out == f"Logged out of {fake.url}\n"
    assert json.loads((tmp_path / "credentials.json").read_text()) == {}
    assert run("pliant whoami").code == 8
    assert run("pliant logout").out == "Not logged in to any server by `login`.\n"


def test_logout_of_a_server_that_does_not_answer_says_that_the_key_stays(run, monkeypatch, tmp_path):
    monkeypatch.delenv("PLIANT_TOKEN", raising=False)
    monkeypatch.delenv("PLIANT_SERVER", raising=False)
    nowhere = "http://127.0.0.1:9"
    (tmp_path / "config.json").write_text(json.dumps({"server": nowhere}))
    (tmp_path / "credentials.json").write_text(json.dumps({nowhere: "plk_a_b"}))
    (tmp_path / "credentials.json").chmod(0o600)
    done = run("pliant logout")
    assert (done.code, done.out) == (0, f"Logged out of {nowhere}\n")
    assert "The key of this login is still valid there.\n" in done.err
    assert f"revoke the key: pliant key revoke login-{os.uname().nodename}\n" in done.err
    assert json.loads((tmp_path / "credentials.json").read_text()) == {}
    assert run("pliant logout").out == "Not logged in to any server by `login`.\n"


def test_a_wrong_token_is_not_remembered(fake, run, monkeypatch, tmp_path):
    monkeypatch.delenv("PLIANT_TOKEN")
    result = run(f"pliant login --server {fake.url} --token wrong")
    assert result == (4, "", "Error: The token is missing or wrong.\n")
    assert not (tmp_path / "credentials.json").exists()


def test_login_with_user_or_application(fake, run, monkeypatch):
    monkeypatch.delenv("PLIANT_TOKEN")
    assert run(f"pliant login user -u yaron -P secret --server {fake.url}").code == 0
    assert fake.sent("POST", "/api/v1/token")[-1] == {
        "grantType": "password",
        "username": "yaron",
        "password": "secret",
    }
    assert run(f"pliant login app --client-id cli --secret {TOKEN} --server {fake.url}").code == 0
    assert fake.sent("POST", "/api/v1/token")[-1]["grantType"] == "client_credentials"
    assert run("pliant whoami").code == 0  # the returned token is the one in use


def test_the_server_of_this_machine_needs_no_login(fake, run, monkeypatch, tmp_path):
    monkeypatch.delenv("PLIANT_SERVER")
    monkeypatch.delenv("PLIANT_TOKEN")
    state = tmp_path / "state" / "pliant"
    state.mkdir(parents=True)
    (state / "server.json").write_text(json.dumps({"url": fake.url, "pid": os.getpid()}))
    (state / "token").write_text(TOKEN + "\n")
    assert run("runai login").out == f"Logged in as yaron at {fake.url} (the server of this machine)\n"
    run("pliant project set team-b")
    assert json.loads((tmp_path / "config.json").read_text())["projects"] == {str(state): "team-b"}
    (state / "token").unlink()
    assert run("pliant list").err.startswith(f"Error: There is no token file {state}/token.\n")


def test_each_server_has_its_own_current_project(fake, run, monkeypatch, tmp_path):
    run("pliant project set team-a")
    other = tmp_path / "other"
    other.mkdir()
    (other / "server.json").write_text(json.dumps({"url": fake.url, "pid": os.getpid()}))
    (other / "token").write_text(TOKEN)
    run(f"pliant project set team-b --state {other}")
    assert "project team-a" in run("pliant list").out
    assert "project team-b" in run(f"pliant list --state {other}").out
    assert "project default" in run("pliant list -p default").out
    monkeypatch.setenv("PLIANT_PROJECT", "team-b")
    assert "project team-b" in run("pliant list").out


def test_tokens_for_the_api(fake, run):
    assert run("runai auth get-token").out == "jwt\n"
    assert fake.last.body == {"grantType": "client_credentials", "clientID": "", "clientSecret": TOKEN}


def test_versions(fake, run, monkeypatch):
    assert run("pliant --version").out == f"pliant {__version__}\n"
    assert run("pliant version").out == f"Client: {__version__}\nServer: 0.1.0\n"
    assert run("pliant version --short").out == f"{__version__}\n"
    monkeypatch.delenv("PLIANT_SERVER")
    assert run("pliant version").out == f"Client: {__version__}\nServer: does not run\n"


def test_completion_scripts_are_for_the_name_that_was_typed(run):
    for shell in ("bash", "zsh", "fish"):
        assert "_RUNAI_COMPLETE" in run(f"runai completion {shell}").out
        assert "_PLIANT_COMPLETE" in run(f"pliant completion {shell}").out


def test_names_of_workloads_are_completed(fake, run, monkeypatch, capsys):
    fake.workloads = [workload("elastic1"), workload("filler1")]
    run("pliant project set team-a")
    monkeypatch.setenv("_PLIANT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "pliant delete el")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run("pliant").out == "plain,elastic1\n"
    monkeypatch.setenv("COMP_WORDS", "pliant li")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run("pliant").out == "plain,limit\nplain,list\n"
