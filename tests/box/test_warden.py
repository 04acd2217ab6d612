"""The warden's tasks have exactly the user's identity; the warden logs what it refuses."""

import errno
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from pliant.engines.local.launch.warden import ORDER, VERSION, Away, Owner, Verb, Walls, launch
from pliant.model.workload import AttemptId
from tests.box.box_rig import PYTHON, accounts, group_file, until

FULL, ZERO = (1, 7), (1, 5)  # stand-ins for two cards: /dev/full and /dev/zero


def say(name):
    return f"touch {name}; while :; do sleep 0.05; done"


def live(box, owner, script="", **words):
    """A task that runs until it is stopped."""
    task = box.shell(owner, f"{script}\necho ready; exec sleep 100000", **words)
    assert task.said.startswith("started"), (task.said, box.journal())
    until(lambda: "ready" in task.log(), "it runs")
    return task


# ---- who it is ----


def test_a_task_is_its_user(box):
    task = box.shell(
        box.alice,
        "id; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; umask; ulimit -c; cat /proc/self/oom_score_a*",
        umask=0o027,
    )
    assert task.said.startswith("started"), (task.said, box.journal())
    text = task.output()
    wanted = subprocess.run(["id", box.alice.name], capture_output=True, text=True, check=True).stdout
    assert text.splitlines() == [
        wanted.strip(), "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "0027", "0", "0",
    ]  # fmt: skip


def test_a_command_inside_is_what_the_task_is(box):
    script = (
        "id; cat /proc/self/cgroup; readlink /proc/self/ns/mnt; cut -d' ' -f5 /proc/self/mountinfo;"
        " echo x > /dev/full; true"
    )
    task = live(box, box.alice, script, walls=Walls(devices=(ZERO,)))
    status, text = box.execute(task, ["/bin/sh", "-c", script])
    assert status == 0
    first, second = (
        [line for line in said.splitlines() if box.tag in line or not line.startswith("/run/plt")]
        for said in (task.log().split("ready")[0], text)
    )  # other tests' mounts come and go where the machine propagates mounts
    assert first == second
    assert "Operation not permitted" in text
    task.stop()


def test_a_command_inside_ends_when_nobody_listens(box):
    task = live(box, box.alice)
    null, words = os.open("/dev/null", os.O_RDWR), launch(["/bin/sleep", "100000"], {})
    got = box.ask(Verb.EXEC, attempt=task.id, owner=task.owner, fds=(null, null, words), cwd="/", keep=True)
    assert len(task.pids()) == 2
    got.connection.close()
    until(lambda: len(task.pids()) == 1, "it is ended")
    task.stop()


def test_a_command_that_is_not_there(box):
    task = live(box, box.alice)
    null, words = os.open("/dev/null", os.O_RDWR), launch(["/no/such"], {})
    said = box.refused(Verb.EXEC, attempt=task.id, owner=task.owner, fds=(null, null, words), cwd="/")
    assert said == "ENOENT: /no/such: No such file or directory"
    task.stop()


def test_the_supervisor_has_nothing_of_the_users(box):
    """Alice's LD_PRELOAD is in her task and in no other process."""
    task = live(box, box.alice, env={"LD_PRELOAD": "/tmp/evil.so", "K": "S3CR3T"})
    root = Path(f"/proc/{task.supervisor}")
    status = dict(
        line.split(":\t", 1) for line in (root / "status").read_text().splitlines() if ":\t" in line
    )
    assert (root / "environ").read_bytes() == b""
    assert status["Uid"].split() == [str(box.server.uid)] * 4
    assert (status["CapEff"], status["NoNewPrivs"]) == ("0000000000000020", "1")
    assert b"S3CR3T" not in (root / "cmdline").read_bytes()
    assert not any(
        "S3CR3T" in file.read_text(errors="replace") for file in task.folder.rglob("*") if file.is_file()
    )
    task.stop()
    assert task.end()["signal"] == signal.SIGKILL


def test_the_servers_account_cannot_look_into_a_supervisor(box):
    task = live(box, box.alice)
    for file in ("mem", "environ", "maps", "fd"):
        done = subprocess.run(
            ["ls" if file == "fd" else "cat", f"/proc/{task.supervisor}/{file}"],
            user=box.server.uid, group=box.server.uid, extra_groups=[],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Permission denied" in done.stderr, file
    task.stop()


def test_the_servers_account_is_nobody_to_jobs_and_users(box):
    """A server under an attacker's control can do nothing by itself, without the warden."""
    home = box.base / "home-a"
    home.chmod(0o700)
    (home / "private").write_text("S3CR3T")
    task = live(box, box.alice)
    (main,) = task.pids()
    group = group_file(f"{box.tag}/user-*/{task.id.workload}.*/pids.max")
    script = (
        f"cat {home}/private; kill -9 {main}; cat /proc/{main}/environ; echo max > {group};"
        f"echo $$ > {group.parent}/cgroup.procs; ls {box.base}/users/{box.alice.uid}/{task.id.workload};"
        "setpriv --reuid 0 id"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", script], user=box.server.uid, group=box.server.uid, extra_groups=[], cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if line]
    assert (done.stdout, len(said)) == ("", 7), done
    assert all("denied" in line or "not permitted" in line for line in said), done
    assert task.pids() == {main}
    task.stop()


# ---- where it is ----


def test_a_working_directory_is_opened_as_the_user(box):
    home = box.base / "home-b"
    home.chmod(0o700)
    task = box.shell(box.alice, "pwd", cwd=str(home))
    end = task.end()
    assert (end["code"], end["error"]) == (126, f"cwd {home}: Permission denied")
    assert task.said == f"error cwd {home}: Permission denied"
    assert box.shell(box.bob, "pwd", cwd=str(home)).output() == f"{home}\n"
    gone = box.shell(box.alice, "pwd", cwd=str(box.base / "gone"))
    assert gone.end()["error"] == f"cwd {box.base}/gone: No such file or directory"


def test_temporary_folders_are_private(box, tmp_path_factory):
    note = f"/tmp/{box.tag}-note"
    task = live(
        box, box.alice, f"echo alice > {note}; echo a > /var/tmp/{box.tag}; echo a > /dev/shm/{box.tag}"
    )
    assert not os.path.exists(note)
    assert (
        box.shell(box.bob, f"cat {note} /var/tmp/{box.tag} /dev/shm/{box.tag}").output().count("No such file")
        == 3
    )
    again = AttemptId(task.id.workload, "worker-1", 1)
    assert box.shell(box.alice, f"cat {note} /dev/shm/{box.tag}", attempt=again).output() == "alice\na\n"
    task.stop()


def test_a_working_directory_below_tmp_stays(box):
    folder = Path("/tmp") / f"{box.tag}-work" / "deep"
    folder.mkdir(parents=True)
    try:
        (folder / "data").write_text("42\n")
        os.chown(folder, box.alice.uid, -1)
        task = box.shell(box.alice, "pwd; cat data; echo 1 > made; ls /tmp", cwd=str(folder))
        assert task.output() == f"{folder}\n42\n{box.tag}-work\n"
        assert (folder / "made").read_text() == "1\n"
    finally:
        subprocess.run(["rm", "-rf", str(folder.parent)], check=True)


def test_others_are_not_seen_in_proc(box):
    alice = live(box, box.alice)
    main = max(alice.pids())
    script = (
        f"for f in environ cmdline status cgroup; do cat /proc/{main}/$f; done; ls /proc | grep -c '^[0-9]'"
    )
    text = box.shell(box.bob, script).output()
    assert text.count("No such file or directory") == 4
    assert int(text.splitlines()[-1]) < 10
    alice.stop()


def test_what_the_server_says_is_seen_read_only(box):
    own = f"{box.base}/users/$(id -u)"
    task = box.attempt()
    folder = f"{own}/{task.workload}/{task.task}.{task.number}"
    text = box.shell(
        box.alice, f"cat {folder}/allocation.json; echo x > {folder}/allocation.json", attempt=task
    ).output()
    assert text.startswith('{"version":1}') and "Read-only file system" in text


# ---- what it refuses ----


def fds_of_a_start():
    null = [os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) for _ in range(3)]
    return [*null[:2], launch(["/bin/true"], {}), null[2]]


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (Owner(0, "root"), "EPERM: uid 0 is below min-uid 1000"),
        (Owner(1, "daemon"), "EPERM: uid 1 is below min-uid 1000"),
        (Owner(999, "nobody"), "EPERM: uid 999 is below min-uid 1000"),
        (Owner(65534, "nobody"), "EPERM: uid 65534 is below"),
        (Owner(2**32 - 1, "x"), "EPERM: uid 4294967295 is below"),
        (Owner(3_000_000_000, "ghost"), "ESRCH: uid 3000000000 has no name: owner-gone"),
    ],
)
def test_accounts_that_run_nothing(box, owner, said):
    fds = fds_of_a_start()
    words = {"attempt": box.attempt(), "owner": owner, "fds": fds, "cwd": "/", "folder": "/nowhere"}
    assert box.refused(Verb.START, **words).startswith(said)
    for fd in fds:
        os.close(fd)


def test_a_uid_that_has_another_name_now_inherits_nothing(box):
    owner = Owner(box.alice.uid, "frank")
    text = box.refused(
        Verb.START, attempt=box.attempt(), owner=owner, fds=fds_of_a_start(), cwd="/", folder="/x"
    )
    assert f"uid {owner.uid} is {box.alice.name} now, it was frank: owner-gone" in text


def test_an_account_without_a_login_shell(box):
    nobody = box.account("n", shell="/usr/sbin/nologin")
    text = box.refused(
        Verb.START, attempt=box.attempt(), owner=nobody, fds=fds_of_a_start(), cwd="/", folder="/x"
    )
    assert "has no login shell" in text


def test_accounts_that_the_configuration_or_root_s_group_keeps_out(box):
    member, system = box.account("i", groups=(box.make_group("j"),)), box.account("k", groups=("root",))
    box.write_config(f"deny-users {box.bob.name}\nallow-group {box.tag}j\n")
    box.kill()
    box.start()
    try:
        for owner, said in (
            (box.bob, "EPERM: user {} is in deny-users"),
            (box.alice, "EPERM: user {} is not in allow-group"),
            (system, "EPERM: user {} is in group 0"),
        ):
            words = {"attempt": box.attempt(), "owner": owner, "fds": fds_of_a_start()}
            text = box.refused(Verb.START, **words, cwd="/", folder="/x")
            assert text.startswith(said.format(owner.name))
        assert box.shell(member, "echo runs").output() == "runs\n"
    finally:
        box.write_config()
        box.kill()
        box.start()


def test_an_account_that_has_expired(box):
    old = box.account("o")
    accounts("chage", "--expiredate", "2001-01-01", old.name)
    text = box.refused(
        Verb.START, attempt=box.attempt(), owner=old, fds=fds_of_a_start(), cwd="/", folder="/x"
    )
    assert "has expired" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"attempt": AttemptId("../x", "worker-0", 1)}, "EINVAL: no workload id"),
        ({"attempt": AttemptId("-rf", "worker-0", 1)}, "EINVAL: no workload id"),
        ({"attempt": AttemptId("w", "a/b", 1)}, "EINVAL: no attempt"),
        ({"attempt": AttemptId("w", "worker-0", 0)}, "EINVAL: no attempt"),
        ({"cwd": "relative"}, "EINVAL: no working directory"),
        ({"folder": "relative"}, "EINVAL: no attempt folder"),
        ({"walls": Walls(memory=2**63)}, "EINVAL: a limit beyond"),
        ({"walls": Walls(devices=((1, 1),))}, "EPERM: device 1:1 is no card of this node"),
        ({"walls": Walls(devices=((1, 3),))}, "EPERM: device 1:3 is no card of this node"),
    ],
)
def test_orders_that_are_none(box, words, said):
    fds = fds_of_a_start()
    plain = {"attempt": box.attempt(), "owner": box.alice, "fds": fds, "cwd": "/", "folder": "/nowhere"}
    assert box.refused(Verb.START, **(plain | words)).startswith(said)
    assert not box.groups()
    for fd in fds:
        os.close(fd)


def test_an_attempt_starts_once(box):
    task = live(box, box.alice)
    text = box.refused(
        Verb.START, attempt=task.id, owner=box.alice, fds=fds_of_a_start(), cwd="/", folder=str(task.folder)
    )
    assert text.startswith("EEXIST: the attempt has a group already")
    assert task.pids()
    task.stop()


def test_leaders_that_were_replaced(box):
    box.epoch += 1
    box.ask(Verb.SIGNAL, attempt=box.attempt(), owner=box.alice, flags=4)
    text = box.refused(Verb.SIGNAL, attempt=box.attempt(), owner=box.alice, flags=4, epoch=box.epoch - 1)
    assert text.startswith(f"ESTALE: epoch {box.epoch - 1} is over, {box.epoch} leads")
    box.kill()
    box.start()
    text = box.refused(Verb.SIGNAL, attempt=box.attempt(), owner=box.alice, flags=4, epoch=box.epoch - 1)
    assert text.startswith("ESTALE")


def connect_as(uid, path):
    script = (
        f"import socket; s = socket.socket(1, 5); s.connect({str(path)!r}); s.send(b'x'); print(s.recv(9))"
    )
    return subprocess.run(
        [PYTHON, "-S", "-c", script], user=uid, group=uid, extra_groups=[], cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_others_do_not_reach_it(box):
    assert "PermissionError" in connect_as(box.bob.uid, box.warden.path).stderr
    os.chmod(box.warden.path, 0o666)
    try:
        done = connect_as(box.bob.uid, box.warden.path)
        assert done.stdout.strip() in ("", "b''"), done
        assert f"refused connection of uid={box.bob.uid}" in box.journal()
    finally:
        os.chmod(box.warden.path, 0o600)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"x", errno.EPROTO),
        (bytes(ORDER.size - 1), errno.EPROTO),
        (bytes(ORDER.size + 1), errno.EPROTO),
        (bytes(ORDER.size), errno.EPROTO),
        (b"PWLD" + (9).to_bytes(4, "little") + bytes(ORDER.size - 8), errno.EPROTONOSUPPORT),
        (
            b"PWLD" + VERSION.to_bytes(4, "little") + (77).to_bytes(4, "little") + bytes(ORDER.size - 12),
            errno.ENOSYS,
        ),
        (
            b"PWLD" + VERSION.to_bytes(4, "little") + (1).to_bytes(4, "little") + bytes(ORDER.size - 12),
            errno.EBADMSG,
        ),
    ],
)
def test_bytes_that_are_no_order(box, message, said):
    os.seteuid(box.server.uid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(str(box.warden.path))
        os.seteuid(0)
        link.send(message)
        assert int.from_bytes(link.recv(4096)[8:12], "little") == said
    assert box.listens()


def test_an_order_that_hangs_holds_up_no_other(box):
    """Here the order never arrives; a hanging name service or file server blocks its child the same way."""
    os.seteuid(box.server.uid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(str(box.warden.path))
        os.seteuid(0)
        assert box.groups() == []
        assert box.shell(box.alice, "echo fine").output() == "fine\n"


def test_a_launch_that_is_cut_short(box):
    for content in (b"", b"\1\0\0\0\1\0\0\0a\0", b"\0\0\0\0\0\0\0\0", b"\xff" * 64):
        fd = os.memfd_create("launch")
        os.write(fd, content)
        fds = [*fds_of_a_start()[:2], fd, os.open("/dev/null", os.O_RDWR)]
        text = box.refused(Verb.START, attempt=box.attempt(), owner=box.alice, fds=fds, cwd="/", folder="/x")
        assert text.startswith("EINVAL: the launch")
    assert not box.groups()


# ---- files ----


def test_discard_removes_what_the_user_made(box):
    task, dora = box.attempt(), box.account("d")
    own = Path(f"{box.base}/users/{dora.uid}/{task.workload}")
    home = box.base / "home-d"
    script = (
        f"mkdir -p {home}/kept; echo 7 > {home}/kept/it; cd {own}/files; mkdir -p a/b/c; echo x > a/b/c/d;"
        f"chmod 0 a/b; ln -s {home}/kept k; echo x > /dev/shm/y"
    )
    done = box.shell(dora, script, attempt=task)
    done.end()
    done.stop()
    assert own.exists()
    box.ask(Verb.DISCARD, attempt=task, owner=dora)
    assert not own.exists()
    assert (home / "kept" / "it").read_text() == "7\n", "no link is followed"
    assert not own.parent.exists(), "it was the last one of dora"


def test_discard_removes_a_tree_of_any_depth(box):
    """The warden holds a descriptor for each level that it is in, at most 1,000 at once."""
    task, gina = box.attempt(), box.account("q")
    own = Path(f"{box.base}/users/{gina.uid}/{task.workload}")
    deep = 'for (1..2500) { mkdir "d" or die; chdir "d" or die }'
    done = box.shell(gina, f"cd {own}/files; perl -e '{deep}'; echo made $?", attempt=task)
    assert "made 0" in done.output()
    box.ask(Verb.DISCARD, attempt=task, owner=gina)
    assert not own.exists()


def test_a_user_leaves_nothing_beside_the_folders_of_workloads(box):
    task = box.attempt()
    own = f"{box.base}/users/{box.alice.uid}"
    text = box.shell(box.alice, f"touch {own}/left; mkdir {own}/w-left; ls {own}", attempt=task).output()
    assert text.count("Permission denied") == 3


def test_a_link_in_the_place_of_a_folder_is_refused(box):
    """Alice's first attempt links the next one's /tmp to a folder that is not hers."""
    first = box.attempt()
    own = f"{box.base}/users/{box.alice.uid}/{first.workload}"
    done = box.shell(box.alice, f"rm -rf {own}/tmp; ln -s {box.base}/home-b {own}/tmp", attempt=first)
    done.end()
    done.stop()
    again = AttemptId(first.workload, first.task, 2)
    text = box.refused(Verb.START, attempt=again, owner=box.alice, fds=fds_of_a_start(), cwd="/", folder="/x")
    assert text.startswith(f"EPERM: {own}/tmp is no folder of the user")
    assert not box.groups()
    box.ask(Verb.DISCARD, attempt=first, owner=box.alice)


# ---- the configuration ----


def try_config(box, text, mode=0o644):
    path = box.base / "tried.conf"
    path.write_text(text)
    path.chmod(mode)
    done = subprocess.run(
        [str(box.base / "warden"), str(path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2
    return done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("colour blue", "unknown key: colour"),
        ("min-uid 5", "twice: min-uid"),
        ("strays maybe", "strays is stop or leave"),
        ("cpu half", "cpu is cores or weight"),
        ("deny-users nobody-of-that-name", "no such user"),
        ("allow-group no-group-of-that-name", "no such group"),
        ("gpu relative", "no absolute path"),
        ("gpu", "no value"),
    ],
)
def test_a_configuration_that_is_wrong(box, line, said):
    assert said in try_config(box, box.config.read_text() + line + "\n")


def test_a_configuration_that_others_can_change(box):
    assert "can be changed by others" in try_config(box, box.config.read_text(), 0o664)
    loose = box.base / "loose"
    loose.mkdir(exist_ok=True)
    loose.chmod(0o777)
    (loose / "warden.conf").write_text(box.config.read_text())
    done = subprocess.run(
        [str(box.base / "warden"), str(loose / "warden.conf")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "can be changed by others" in done.stderr


def test_there_is_one_warden(box):
    done = subprocess.run(
        [str(box.base / "warden"), str(box.config)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2 and "another warden runs" in done.stderr
    assert box.listens()


def test_nobody_is_there_when_it_is_away(box):
    box.kill()
    with pytest.raises(Away, match="does not answer"):
        box.ask(Verb.LIST, fds=())
    box.start()


def test_the_record_of_an_end(box):
    end = box.shell(box.alice, "exit 3").end()
    assert (end["code"], end["signal"], end["stopped"]) == (3, None, False)
    assert json.dumps(end)
