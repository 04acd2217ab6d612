"""openid.yaml: errors name the fault and the remedy, and quote nothing that may be a secret."""

import pytest

from pliant.model.identity import Provider
from pliant.model.rights import PRACTITIONER, VIEWER
from pliant.site.openid import read
from pliant.site.trusted import Wrong
from tests.cli.conftest import run
from tests.site.test_warden_conf import conf

__all__ = ["conf", "run"]

LEAST = {
    "name": "Lab login",
    "issuer": "https://login.example.org/realm",
    "client": "pliant",
    "secret-file": "/etc/pliant/openid.secret",
    "address": "https://gpu.example.org:8443",
}


def written(**other):
    said = {name: value for name, value in {**LEAST, **other}.items() if value is not None}
    return "".join(f"{name}: {value}\n" for name, value in said.items())


def test_what_it_says_and_what_it_leaves_out(conf):
    conf.write_text(written())
    found = read(conf, rooted=True)
    assert found == Provider(
        "Lab login",
        "https://login.example.org/realm",
        "pliant",
        "/etc/pliant/openid.secret",
        "https://gpu.example.org:8443",
    )
    assert found.back == "https://gpu.example.org:8443/console/openid/back"
    conf.write_text(
        written(
            address="http://localhost:8010/",
            scopes="[profile, groups, openid]",
            groups="https://example.org/groups",
            allowed="[gpu-users]",
            roles="[gpu-users=ai-practitioner@team-a, 'cn=x,dc=y=viewer']",
            email="mail",
            uid="uid_number",
        )
    )
    found = read(conf, rooted=True)
    assert (found.address, found.scopes) == ("http://localhost:8010", ("openid", "profile", "groups"))
    assert (found.email, found.uid) == ("mail", "uid_number")
    assert (found.groups, found.allowed) == ("https://example.org/groups", ("gpu-users",))
    assert found.roles == (("gpu-users", PRACTITIONER.id, "team-a"), ("cn=x,dc=y", VIEWER.id, ""))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"issuer": None}, "the key issuer is missing"),
        ({"secret-file": None}, "the key secret-file is missing"),
        ({"colour": "red"}, "there is no key 'colour'"),
        ({"isuer": "x"}, "Did you mean issuer?"),
        ({"client": "7"}, "client is no text"),
        ({"client": "''"}, "client is no text"),
        ({"name": '"a\\e[31mb"'}, "name is no text"),
        ({"issuer": "http://login.example.org"}, "Give one that begins with https://"),
        ({"issuer": "login.example.org"}, "Give an address such as https://host"),
        ({"issuer": "https://login.example.org?x=y"}, "Give an address such as"),
        ({"issuer": "https://me:word@login.example.org"}, "Give an address such as"),
        ({"address": "https://gpu.example.org:x"}, "Give an address such as"),
        ({"address": "http://gpu.example.org"}, "Give one that begins with https://"),
        ({"email": "[a]"}, "email is no text"),
        ({"gid": "gid"}, "a job has the groups that its account has on this machine"),
        ({"supplementaryGroups": "groups"}, "supplementaryGroups cannot be taken from a claim"),
        ({"scopes": "profile"}, "Give a list of texts"),
        ({"scopes": "['two words']"}, "Give words without spaces"),
        ({"allowed": "[7]"}, "Give a list of texts"),
        ({"roles": "[gpu-users]"}, "Write GROUP=ROLE or GROUP=ROLE@PROJECT. Roles: admin,"),
        ({"roles": "[gpu-users=king]"}, "Write GROUP=ROLE or GROUP=ROLE@PROJECT"),
        ({"roles": "['=viewer']"}, "Write GROUP=ROLE or GROUP=ROLE@PROJECT"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(conf, other, said):
    conf.write_text(written(**other))
    with pytest.raises(Wrong) as caught:
        read(conf, rooted=True)
    assert said in str(caught.value)


@pytest.mark.parametrize("secret", ["hunter2-the-secret-itself", "4711081500000", "[hunter2, a]"])
def test_a_secret_in_the_file_itself_is_refused_and_not_repeated(conf, secret):
    conf.write_text(written(**{"secret-file": secret}))
    with pytest.raises(Wrong, match="secret-file") as caught:
        read(conf, rooted=True)
    assert "hunter2" not in str(caught.value) and "4711" not in str(caught.value)


def test_a_file_that_others_may_write_is_not_read(conf, tmp_path):
    conf.write_text(written())
    conf.chmod(0o666)
    with pytest.raises(Wrong, match=f"chmod go-w {conf}"):
        read(conf, rooted=True)
    mine = tmp_path / "openid.yaml"
    mine.write_text(written())
    mine.chmod(0o644)
    assert read(mine, rooted=False).name == "Lab login"
    mine.write_text(written(uid="uid_number"))
    with pytest.raises(Wrong, match="uid has no effect here"):
        read(mine, rooted=False)
    mine.chmod(0o664)
    with pytest.raises(Wrong, match=f"chmod go-w {mine}"):
        read(mine, rooted=False)
    with pytest.raises(Wrong, match="no file"):
        read(tmp_path, rooted=False)


def test_config_check_reads_it_and_asks_the_provider(conf, run):
    openid = conf.with_name("openid.yaml")
    try:
        conf.write_text(f"openid: {openid}\n")
        openid.write_text(written(issuer="http://127.0.0.1:9"))
        openid.chmod(0o644)
        done = run(f"pliant config check {conf}")
        assert done.code == 0 and str(openid) in done.out
        said = "login by Lab login: The login provider Lab login (http://127.0.0.1:9) cannot be used"
        assert said in done.err
        openid.write_text(written(issuer="there"))
        done = run(f"pliant config check {conf}")
        assert done.code == 1 and f"{openid}: issuer is 'there'. Give an address" in done.err
    finally:
        openid.unlink(missing_ok=True)
