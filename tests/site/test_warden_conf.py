"""The warden's configuration as the server reads it: errors name the line and the remedy."""

import os
from pathlib import Path

import pytest

from pliant.site.trusted import Wrong
from pliant.site.warden import read
from tests.house.gaps import gap

GOOD = "server-user pliant\nsupervisor /usr/local/lib/pliant/pliant-supervise\n"


@pytest.fixture
def conf(request):
    """A file in a folder that only root can change."""
    if os.geteuid() != 0:
        gap("no root", "run the tests as root: they make files that root alone may change")
    folder = Path("/run") / f"plt-conf-{os.getpid()}-{abs(hash(request.node.name))}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    file = folder / "warden.conf"
    file.write_text(GOOD)
    file.chmod(0o644)
    yield file
    file.unlink()
    folder.rmdir()


def test_what_it_says_and_what_it_leaves_out(conf):
    conf.write_text(f"# ours\n{GOOD}min-uid\t2000  # people\ngpu /dev/a\ngpu /dev/b\n\n")
    found = read(conf)
    assert (found.server, found.least) == ("pliant", 2000)
    assert (str(found.work), str(found.runtime)) == ("/var/lib/pliant-work", "/run/pliant-warden")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("min-uit 1000\n", "line 3: there is no key 'min-uit'. Did you mean min-uid?"),
        ("quark 1\n", "line 3: there is no key 'quark'. There are: server-user, "),
        ("min-uid many\n", "line 3: min-uid 'many' is not a number above 0."),
        ("min-uid\n", "line 3: min-uid has no value."),
        ("work here\n", "line 3: work 'here' is no absolute path."),
        ("\nserver-user bob\n", "line 4: server-user is there twice. Leave one of the lines out."),
    ],
)
def test_a_wrong_line_is_named(conf, more, said):
    conf.write_text(GOOD + more)
    with pytest.raises(Wrong) as caught:
        read(conf)
    assert said in str(caught.value)


def test_a_missing_key_and_a_file_that_is_no_text(conf):
    conf.write_text("server-user pliant\n")
    with pytest.raises(Wrong, match="supervisor is missing"):
        read(conf)
    conf.write_bytes(b"server-user \xff\n")
    with pytest.raises(Wrong, match="byte 12 cannot be read"):
        read(conf)


@pytest.mark.parametrize("part", ["the file", "its folder"])
def test_a_file_that_others_could_change_is_not_believed(conf, part):
    place = conf if part == "the file" else conf.parent
    place.chmod(place.stat().st_mode | 0o002)
    with pytest.raises(Wrong, match=rf"others than root may write to {place} .*chmod go-w {place}"):
        read(conf)
    place.chmod(0o755)
    os.chown(place, 12345, -1)
    with pytest.raises(Wrong, match=f"{place} belongs to user 12345.*chown root {place}"):
        read(conf)
    os.chown(place, 0, -1)
    read(conf)
