"""Where and in which order the client looks for the server, and the error if there is none."""

import json
import os

import pytest

from pliant.client import Client
from pliant.client.config import Config, config_path
from pliant.client.errors import PliantError, Unauthorized, Unreachable
from pliant.client.locate import Endpoint, locate, server_record, state_folder


@pytest.fixture
def state(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:1234/", "pid": 1}))
    (folder / "token").write_text("local\n")
    return str(folder)


@pytest.fixture
def config(tmp_path):
    return Config(str(tmp_path / "config" / "config.json"))


def test_a_token_file_that_is_no_text(tmp_path):
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    env = {"PLIANT_TOKEN_FILE": str(tmp_path / "token")}
    with pytest.raises(PliantError, match="does not hold a token: it is not text"):
        locate("http://127.0.0.1:1", env=env)


def test_the_state_folder(tmp_path):
    home = os.path.expanduser("~")
    assert state_folder(None, {}) == f"{home}/.local/state/pliant"
    assert state_folder(None, {"XDG_STATE_HOME": "/x"}) == "/x/pliant"
    assert state_folder(None, {"XDG_STATE_HOME": "/x", "PLIANT_STATE": "/y"}) == "/y"
    assert state_folder("/z", {"PLIANT_STATE": "/y"}) == "/z"
    assert os.path.isabs(state_folder("relative"))


def test_an_account_without_a_home(monkeypatch, tmp_path):
    """As in containers: no file may be written into a folder named `~`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(PliantError, match="no home") as caught:
        state_folder(None, {})
    assert "PLIANT_STATE" in caught.value.details
    assert state_folder(None, {"PLIANT_STATE": "/y"}) == "/y"
    config = Config(config_path({}))
    assert config.server is None
    with pytest.raises(PliantError, match="no home"):
        config.set_server("http://127.0.0.1:1")
    assert list(tmp_path.iterdir()) == []


def test_the_configuration():
    home = os.path.expanduser("~")
    assert config_path({}) == f"{home}/.config/pliant/config.json"
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == "/x/pliant/config.json"
    assert config_path({"PLIANT_CONFIG": "/c.json"}) == "/c.json"


def test_a_local_server(state, config):
    env = {"PLIANT_STATE": state}
    found = Endpoint("http://127.0.0.1:1234", "local", state)
    assert locate(env=env, config=config) == found
    assert locate(state=state, env={"PLIANT_SERVER": "http://other", "PLIANT_TOKEN": "t"}) == found
    assert found.key == state


def test_the_order(state, config):
    config.set_server("http://login")
    config.set_token("http://login", "of-login")
    env = {"XDG_STATE_HOME": "/nowhere"}
    assert locate(env=env, config=config)[:2] == ("http://login", "of-login")
    env["PLIANT_STATE"] = state
    assert locate(env=env, config=config).state == state
    env |= {"PLIANT_URL": "http://job", "PLIANT_TOKEN": "t"}
    assert locate(env=env, config=config) == ("http://job", "t", None, None, None)
    env["PLIANT_SERVER"] = "http://env/"
    assert locate(env=env, config=config) == ("http://env", "t", None, None, None)
    assert locate("http://flag", env=env, config=config) == ("http://flag", "t", None, None, None)
    assert locate("host:1", env=env, config=config).url == "http://host:1"


def test_tokens(state, tmp_path, config):
    file = tmp_path / "job-token"
    file.write_text("of-job\n")
    assert locate("http://x", env={"PLIANT_TOKEN_FILE": str(file)}).token == "of-job"
    assert locate("http://x", env={"PLIANT_TOKEN_FILE": str(file), "PLIANT_TOKEN": "t"}).token == "t"
    # the local server given by its address: its own token is used
    assert locate("http://127.0.0.1:1234", env={"PLIANT_STATE": state}).token == "local"
    assert locate("http://127.0.0.1:99", env={"PLIANT_STATE": state}).token is None
    with pytest.raises(Unauthorized, match="no token file"):
        locate("http://x", env={"PLIANT_TOKEN_FILE": str(tmp_path / "none")})


def test_no_server(tmp_path):
    with pytest.raises(Unreachable, match="No Pliant server runs here") as caught:
        locate(state=str(tmp_path), env={})
    assert str(tmp_path) in caught.value.details


def test_half_a_record_counts_as_none(state):
    path = os.path.join(state, "server.json")
    for text in ("", '{"url": "htt', "[]", '{"pid": 1}'):
        with open(path, "w") as file:
            file.write(text)
        assert server_record(state) is None


def test_the_client_finds_it_too(state, config, monkeypatch):
    for name in ("PLIANT_SERVER", "PLIANT_URL", "PLIANT_TOKEN", "PLIANT_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PLIANT_CONFIG", config.path)
    with Client.connect(state=state) as client:
        assert client.url == "http://127.0.0.1:1234"


def test_settings_are_kept_private_and_whole(config):
    config.set_project("http://x", "team-a")
    config.set_cluster("http://x", "uuid")
    config.set_token("http://x", "secret")
    again = Config(config.path)
    assert (again.project("http://x"), again.cluster("http://x"), again.token("http://x")) == (
        "team-a",
        "uuid",
        "secret",
    )
    assert again.project("http://y") is None
    folder = os.path.dirname(config.path)
    assert sorted(os.listdir(folder)) == ["config.json", "credentials.json"]
    assert all(os.stat(os.path.join(folder, name)).st_mode & 0o077 == 0 for name in os.listdir(folder))
    config.set_token("http://x", None)
    assert Config(config.path).token("http://x") is None


@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
def test_a_broken_file_is_named_and_never_overwritten(text, config):
    os.makedirs(os.path.dirname(config.path))
    with open(config.path, "w") as file:
        file.write(text)
    with pytest.raises(PliantError, match=r"config\.json"):
        Config(config.path)
    with open(config.path) as file:
        assert file.read() == text


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    config = Config(str(tmp_path / "other" / "config.json"))
    config.path = str(tmp_path / "file" / "config.json")
    with pytest.raises(PliantError, match="Cannot write"):
        config.set_project("k", "p")


def test_a_server_with_a_socket_is_asked_there_and_gets_no_token(state, config):
    record = {"url": "http://127.0.0.1:1234", "pid": 1, "socket": "sock"}
    with open(os.path.join(state, "server.json"), "w") as file:
        json.dump(record, file)
    found = locate(state=state, env={}, config=config)
    assert (found.token, found.socket) == (None, os.path.join(state, "sock"))
    told = locate(env={"PLIANT_STATE": state, "PLIANT_TOKEN": "another"}, config=config)
    assert (told.token, told.socket) == ("another", None), "who brings a token is who it says"


def test_the_authority_of_a_server(tmp_path, config):
    """Named for this run, kept at login, or recorded by the local server; else the system's authorities."""
    folder = tmp_path / "sealed"
    folder.mkdir()
    record = {"url": "https://127.0.0.1:1234", "pid": 1, "authority": "tls/trusted.pem"}
    (folder / "server.json").write_text(json.dumps(record))
    (folder / "token").write_text("local\n")
    env = {"PLIANT_STATE": str(folder)}
    own = str(folder / "tls" / "trusted.pem")
    assert locate(env=env, config=config).authority == own
    assert locate("https://127.0.0.1:1234/", env=env, config=config).authority == own
    assert locate("https://127.0.0.1:1235", env=env, config=config).authority is None
    config.set_authority("https://127.0.0.1:1235", "certificates\n")
    kept = locate("https://127.0.0.1:1235", env=env, config=config).authority
    assert kept is not None
    with open(kept) as file:
        assert file.read() == "certificates\n"
    assert os.stat(kept).st_mode & 0o077 == 0
    env["PLIANT_CA"] = "/named"
    assert locate("https://127.0.0.1:1235", env=env, config=config).authority == "/named"
    assert locate("http://127.0.0.1:1235", env=env, config=config).authority is None
