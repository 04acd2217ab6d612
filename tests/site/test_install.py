"""Setting up a shared machine: files below a root, units that systemd understands, findings."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pliant.site import warden
from pliant.site.config import Config, read
from pliant.site.install import NATIVE, Installation, own_cores
from pliant.site.machine import _environment, _groups, findings
from pliant.site.trusted import Wrong
from pliant.site.units import CAPABILITIES, STARTED, units
from tests.box.box_rig import CAPABILITIES as TRIED
from tests.cli.conftest import run
from tests.house.gaps import gap

__all__ = ["run"]

NATIVES = Path(warden.__file__).parents[1] / "engines" / "local" / "bin"


@pytest.fixture
def root():
    """A folder that only root can change."""
    if os.geteuid() != 0:
        gap("no root", "run the tests as root: they make files that root alone may change")
    if not all((NATIVES / name).exists() for name in NATIVE):
        gap("no warden", "install a C compiler and run `make native`")
    made = Path("/run") / f"plt-root-{os.getpid()}"
    made.mkdir(mode=0o755)
    yield made
    shutil.rmtree(made)


def install(root) -> list[str]:
    done = []
    for step in Installation(NATIVES, Path("/opt/pliant/bin/pliant"), root).steps():
        step.do()
        done.append(step.what)
    return done


def test_done_again_it_changes_only_what_is_different(root):
    assert len(install(root)) == 11
    assert install(root) == []
    conf, unit = root / "etc/pliant/warden.conf", root / "etc/systemd/system/pliant.service"
    conf.write_text(conf.read_text() + "min-uid 2000\n")
    unit.write_text("[Service]\n")
    (root / "usr/local/lib/pliant/pliant-warden").write_bytes(b"old")
    done = install(root)
    assert [line.split("/")[-1] for line in done] == ["pliant-warden", "pliant.service"]
    assert "min-uid 2000" in conf.read_text(), "what an administrator wrote stays"
    assert (root / "usr/local/lib/pliant/pliant-warden").stat().st_mode & 0o777 == 0o755
    assert not [*root.rglob("*.new")]


def test_what_is_installed_can_be_read_by_server_and_warden(root):
    install(root)
    found = warden.read(root / "etc/pliant/warden.conf")
    assert (found.server, str(found.supervisor)) == ("pliant", "/usr/local/lib/pliant/pliant-supervise")
    assert read(root / "etc/pliant/config.yaml") == Config()


def test_the_socket_unit_holds_the_port_of_the_console(root):
    install(root)
    text = (root / "etc/systemd/system/pliant.socket").read_text()
    assert "ListenStream=127.0.0.1:8020\n" in text and "{" not in text
    given = {"socket": Path("/run/x"), "state": Path("/s"), "programs": Path("/p"), "etc": Path("/e")}
    without = units(**given, console=0, command=Path("/c"), account="a")["pliant.socket"]
    assert without.count("ListenStream") == 1


def test_systemd_understands_the_units(root):
    install(root)
    if shutil.which("systemd-analyze") is None:
        gap("no systemd", "apt install systemd")
    units = root / "etc/systemd/system"
    for name in STARTED:  # the programs whose presence it checks
        text = (units / name).read_text()
        (units / name).write_text(
            text.replace("/opt/pliant/bin/pliant", "/usr/bin/true").replace(
                "/usr/local/lib/pliant/pliant-warden", "/usr/bin/true"
            )
        )
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(units / name) for name in STARTED)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (said.returncode, said.stderr.strip()) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=25", str(units / "pliant.service")]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout[-800:] + said.stderr


def test_the_units_hold_what_the_walls_need(root):
    install(root)
    units = {name: (root / "etc/systemd/system" / name).read_text() for name in STARTED}
    server = units["pliant.service"]
    assert (
        "User=pliant" in server and "CapabilityBoundingSet=\n" in server and "NoNewPrivileges=yes" in server
    )
    for word in ("NoNewPrivileges", "ProtectSystem", "PrivateTmp=", "SystemCallFilter="):
        assert not [line for line in units["pliant-warden.service"].splitlines() if line.startswith(word)]
    assert "KillMode=process" in units["pliant-warden.service"], "its restart ends no job"
    assert "Delegate=yes" in units["pliant-jobs.service"]
    assert {word.lower().removeprefix("cap_") for word in CAPABILITIES.split()} == set(TRIED.split(",")), (
        "the tests of the warden run it with what the unit leaves it"
    )


@pytest.mark.parametrize("part", ["etc/pliant/warden.conf", "usr/local/lib/pliant"])
def test_a_link_in_the_way_is_not_followed(root, part):
    install(root)
    place = root / part
    kept = place.with_name("elsewhere")
    place.rename(kept)
    place.symlink_to(kept)
    before = {path: path.read_bytes() for path in kept.rglob("*")} if kept.is_dir() else kept.read_bytes()
    with pytest.raises(Wrong, match="is a link"):
        install(root)
    assert before == (
        {path: path.read_bytes() for path in kept.rglob("*")} if kept.is_dir() else kept.read_bytes()
    )


def test_a_missing_program_is_told_with_its_cure(root):
    with pytest.raises(Wrong, match=r"is missing\. Build it: make native"):
        list(Installation(root / "nothing", Path("/opt/pliant/bin/pliant"), root).steps())


# -- what the machine has ---------------------------------------------------------------------------

UNIFIED = "30 23 0:26 / {place} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
FIRST = "31 23 0:27 / /sys/fs/cgroup/{name} {mode},nosuid - cgroup cgroup rw,{name}"


@pytest.mark.parametrize(
    ("lines", "status", "text"),
    [
        ([], "fail", "none are mounted"),
        ([UNIFIED], "ok", "version 2"),
        ([UNIFIED.replace(" rw,nosuid", " ro,nosuid")], "fail", "is read-only"),
        ([UNIFIED, FIRST.format(name="memory", mode="rw")], "warn", "version 1 and 2"),
        ([FIRST.format(name="memory", mode="rw")], "warn", "version 1"),
    ],
    ids=["none", "v2", "read-only", "hybrid", "v1"],
)
def test_control_groups_of_either_version(tmp_path, lines, status, text):
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    found = [*_groups("\n".join(lines).format(place=tmp_path))]
    assert (found[0].status, text in found[0].text) == (status, True)
    held = {one.what.split()[0]: one.status for one in found[1:]}
    if status == "ok":
        assert held == {"memory": "ok", "pids": "ok", "cpu": "ok"}


def test_whole_cores_are_a_jobs_own_where_there_are_enough(tmp_path):
    both = [UNIFIED.format(place=tmp_path), FIRST.format(name="cpuset", mode="rw")]
    for held, lines, count, apart in (
        ("cpu memory pids\n", both, 8, True),
        ("cpu memory pids\n", both, 7, False),
        ("cpu memory pids\n", both[:1], 8, False),
        ("cpuset cpu memory pids\n", both[:1], 8, True),
        ("", [], 8, False),
    ):
        (tmp_path / "cgroup.controllers").write_text(held)
        assert own_cores("\n".join(lines), count) is apart


def test_a_controller_that_is_missing_or_read_only_is_named():
    lines = [FIRST.format(name="memory", mode="ro"), FIRST.format(name="pids", mode="rw")]
    found = {one.what: (one.status, one.text) for one in _groups("\n".join(lines))}
    assert found["memory limits"] == ("fail", "the controller memory is mounted read-only")
    assert found["pids limits"][0] == "ok"
    assert found["cpu limits"] == ("fail", "--cpu is not limited: the kernel has no controller cpu")


def test_an_installation_that_others_could_change_or_not_read(root):
    prefix = root / "venv"
    prefix.mkdir(mode=0o755)
    assert _environment(prefix).status == "ok"
    prefix.chmod(0o777)
    assert "chmod go-w" in _environment(prefix).text
    prefix.chmod(0o700)
    assert f"chmod a+rx {prefix}" in _environment(prefix).text


def test_every_finding_has_a_text_and_the_command_tells_them(root, run):
    found = findings(NATIVES)
    assert {one.status for one in found} <= {"ok", "warn", "fail"} and all(one.text for one in found)
    done = run("pliant box doctor")
    assert all(one.what in done.out for one in found)
    said = run("pliant box install --check").out
    assert "Would be done: " in said or "Nothing" in said
    assert not Path("/etc/systemd/system/pliant.service").exists() or "pliant.service" not in said


def test_the_command_installs_below_a_root(root, run):
    done = run(f"pliant box install --root {root}")
    assert done.code == 0 and f"Done: write {root}/etc/systemd/system/pliant.service" in done.out
    assert run(f"pliant box install --root {root}").out == "Nothing to do: everything is installed.\n"
