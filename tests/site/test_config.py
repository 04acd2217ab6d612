"""config.yaml and its check: errors name the fault and the remedy."""

from pathlib import Path

import pytest

from pliant.site.config import KEYS, Config, read, shown, template
from pliant.site.trusted import Wrong
from tests.cli.conftest import run
from tests.site.test_warden_conf import conf

__all__ = ["conf", "run"]


def test_what_it_says_and_what_it_leaves_out(conf):
    conf.write_text("state: /srv/pliant\nsimulate: [1x2, '2x4:16G']\nconnections: 0\n")
    assert read(conf) == Config(state=Path("/srv/pliant"), simulate=("1x2", "2x4:16G"), connections=0)
    conf.write_text("")
    assert read(conf) == Config() == read(conf.with_name("not-there.yaml"))


def test_the_file_that_is_installed_says_the_defaults(conf):
    conf.write_text(template())
    assert read(conf) == Config()
    lines = template().splitlines()
    conf.write_text(
        "\n".join(line[2:] if line[2:].split(":")[0] in shown(Config()) else line for line in lines)
    )
    assert read(conf) == Config()
    assert [key.name for key in KEYS] == list(shown(Config()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stat: /srv\n", "there is no key 'stat'. Did you mean state?"),
        ("1: 2\n", "there is no key '1'"),
        ("state: here\n", "state is 'here'. Give an absolute path."),
        ("state: /a/../b\n", "Give an absolute path."),
        ("state: 7\n", "Give an absolute path."),
        ("connections: many\n", "connections is 'many'. Give a whole number"),
        ("connections: true\n", "connections is True. Give a whole number"),
        ("connections: -1\n", "Give a whole number"),
        ("submissions: 1.5\n", "Give a whole number"),
        ("simulate: 1x2\n", "Give a list of texts"),
        ("simulate: [1]\n", "Give a list of texts"),
        ("state: /a\nstate: /b\n", "line 2: state is there twice"),
        ("state: [\n", "line 1: "),
        ("- state\n", "has no keys"),
        ("state: !!python/object:os.system {}\n", "could not determine a constructor"),
        ("a: &a [*a]\n", "recursive"),
        ("state: " + "[" * 3000 + "\n", "lists"),
        ("#" * 70_000, "more than 65536 characters"),
    ],
    ids=lambda text: text[:24],
)
def test_what_is_wrong_is_named(conf, text, said):
    conf.write_text(text)
    with pytest.raises(Wrong) as caught:
        read(conf)
    assert said in str(caught.value)


@pytest.mark.parametrize("mode", [0o666, 0o664], ids=oct)
def test_a_file_that_others_may_write_is_not_read(conf, mode):
    conf.chmod(mode)
    with pytest.raises(Wrong, match=f"mode {mode:04o}.*chmod go-w {conf}"):
        read(conf)


def test_the_command_shows_what_holds_and_what_is_wrong(conf, run):
    conf.write_text("connections: 5\n")
    lines = run(f"pliant config check {conf}").out.splitlines()
    assert lines[0].split()[:2] == ["KEY", "VALUE"] and len(lines) == 1 + len(KEYS)
    assert next(line for line in lines if line.startswith("connections")).split()[1] == "5"
    conf.write_text("colour: 5\n")
    done = run(f"pliant config check {conf}")
    assert done.code == 1 and "there is no key 'colour'" in done.err
