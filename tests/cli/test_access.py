"""user, app, key, access-rule and audit log against the real routes: input and output."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from pliant.api.connections.listeners import open_port
from tests.api.stage import TOKEN, Stage, stage, until


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A server's inside behind a real port, with the command line set up to find it."""
    (tmp_path / "stage").mkdir()
    with stage(tmp_path / "stage") as made:
        config = uvicorn.Config(made.app(), port=0, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        socket = open_port("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
        thread.start()
        until(lambda: server.started)  # until then the port does not listen
        monkeypatch.setenv("PLIANT_SERVER", f"http://127.0.0.1:{socket.getsockname()[1]}")
        monkeypatch.setenv("PLIANT_TOKEN", TOKEN)
        monkeypatch.setenv("PLIANT_CONFIG", str(tmp_path / "config.json"))
        yield made
        server.should_exit = True
        thread.join(60)
        socket.close()


def test_people_programs_and_rules(real: Stage, run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("pliant user create anna").out
    assert first.startswith("User anna created. First password, shown once: ")
    assert run("pliant user create anna").code == 5
    made = run("pliant access-rule create --user anna --role researcher --in-project default").out
    assert made.startswith("anna has the role AI practitioner in project default. Rule: ")
    rule = made.split()[-1]
    assert "AI practitioner" in run("pliant access-rule list").out
    assert run("pliant access-rule create --role viewer").code == 2
    assert "Viewer" in run("pliant access-rule roles").out
    told = run("pliant app create nightly").out
    assert "Client secret, shown once: " in told
    listed = run("pliant app list")
    assert "nightly" in listed.out and told.split()[-1] not in listed.out
    assert run("pliant app disable nightly").out == "Application nightly disabled.\n"
    assert run("pliant user reset anna").out.startswith("New password of user anna, shown once: ")
    assert run(f"pliant access-rule delete {rule}").out == f"Access rule {rule} deleted.\n"
    assert run("pliant user delete anna").out == "User anna deleted.\n"
    assert run("pliant user delete anna").code == 3
    log = run("pliant audit log --entity anna").out
    assert "delete" in log and "User anna" in log and "Succeeded" in log
    assert json.loads(run("pliant audit log --export json").out)[0]["action"] == "create"
    assert run("pliant audit log --export csv --user nobody").out.startswith("id,timestamp,subject")


def test_roles_are_made_of_permission_sets(real: Stage, run) -> None:
    assert "nodesReadAccess" in run("pliant role sets").out
    made = run("pliant role create Looks --set nodesReadAccess --set usersReadAccess --description Sees.").out
    assert made == "Role Looks created, id 101. Grant it: pliant access-rule create --role 101\n"
    listed = run("pliant role list").out
    assert "built-in" in listed and "Looks" in listed and "Sees." in listed
    shown = run("pliant role describe looks").out
    assert "users" in shown and "workloads" not in shown
    run("pliant app create bot")
    assert "has the role Looks everywhere" in run("pliant access-rule create --app bot --role looks").out
    assert run("pliant role update looks --name Peeks --set nodesReadAccess").out == "Role Peeks updated.\n"
    assert json.loads(run("pliant role describe Peeks --json").out)["permissionSets"] == [
        {"id": "nodesReadAccess", "name": "nodesReadAccess"}
    ]
    refused = run("pliant role delete Peeks")
    assert refused.code == 5 and "pliant role disable 101" in refused.err
    assert run("pliant role disable Peeks").out == "Role Peeks disabled.\n"
    assert "disabled" in run("pliant role list").out
    assert run("pliant role enable Peeks").out == "Role Peeks enabled.\n"
    run("pliant role disable 101")
    assert run("pliant role delete Peeks").out == "Role Peeks deleted.\n"
    assert run("pliant role update Viewer --name Mine").code == 5
    assert run("pliant role update Viewer").code == 2


def test_a_login_is_a_key_that_ends_with_the_logout(
    real: Stage, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run("pliant user create anna").out.split()[-1]
    run("pliant access-rule create --user anna --role viewer")
    service = real.service
    password = "correct-horse"
    typed = iter([password, password])
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda _: next(typed))
    monkeypatch.delenv("PLIANT_TOKEN")
    server = os.environ["PLIANT_SERVER"]
    monkeypatch.delenv("PLIANT_SERVER")
    done = run(f"pliant login user -u anna -P {first} --server {server}")
    assert done.code == 0 and done.out.startswith("Logged in as anna@"), done
    assert "An administrator gave you this password. Set your own" in done.err
    assert next(typed, None) is None
    assert run(f"pliant login user -u anna -P {first} --server {server}").code == 4, "it is good no more"
    assert [row.owner_name for row in service.board.access.keys.values()] == ["anna"]
    assert "Role: Viewer" in run("pliant whoami").out
    assert run("pliant key create more --only read").code == 0
    assert run("pliant key revoke more").out == "Access key more revoked.\n"
    assert run(f"pliant login user -u anna -P {password} --server {server}").code == 0, "again"
    assert len(service.board.access.keys) == 1
    assert run("pliant logout").code == 0
    assert not service.board.access.keys
    assert run(f"pliant login user -u anna -P wrong-word --server {server}").code == 4
