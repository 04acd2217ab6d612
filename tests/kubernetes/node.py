"""A real node of a control plane: containerd, a kubelet and a device plugin in namespaces of their own.

These hide what a kubelet changes on its machine: kernel settings, /run, /var/lib. Two nodes may run at once.
When the first process of the pid namespace ends, the kernel ends all others, including those of containers.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.house.gaps import gap
from tests.kubernetes.control_plane import ROOT, SETUP, ControlPlane, pieces, until
from tests.kubernetes.images import archive
from tests.kubernetes.keeper import die_with_parent, free_ports

NAME = "localhost"  # the API server reaches the kubelet by it
PAUSE = "localhost/pause:1"
CGROUPS = Path("/sys/fs/cgroup")
SUBNET = "10.88"
DNS = f"{SUBNET}.255.1"
RUN, LIB = "/run/containerd", "/var/lib/kubelet"  # built into the programs
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc", "busybox", "kubelet", "plugin")

SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Settings that a kubelet writes: these files cover the machine's."""


def programs() -> Path:
    """The folder of the programs; a gap if it is missing or no kubelet can run here."""
    folder = pieces()
    if any(not (folder / name).exists() for name in PROGRAMS):
        gap("no programs of a node", f"run {SETUP}")
    if os.geteuid() != 0:
        gap("no kubelet", "run the tests as root")
    if not (CGROUPS / "memory").is_dir():
        gap("no kubelet", "use a machine with control groups of version 1, as the settings here are for")
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "--make-rshared", "/"],
        check=False,
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        gap("no kubelet", f"let root make namespaces here: {tried.stderr.strip()}")
    if shutil.which("ip") is None:
        gap("no network of pods", "apt install iproute2")
    return folder


def image(
    name: str, files: Mapping[str, Path], path: Path, *, entry: Sequence[str] = (), env: Sequence[str] = ()
) -> Path:
    """Makes an archive of an image with these files and a shell with the usual commands."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "dev", "proc", "sys"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(made)
        for target, source in {"bin/busybox": programs() / "busybox", **files}.items():
            made = tarfile.TarInfo(target)
            made.size, made.mode = source.stat().st_size, 0o755
            with source.open("rb") as data:
                tar.addfile(made, data)
        for command in ("sh", "cp", "chmod", "sleep", "env", "cat", "id", "nc", "kill", "ls"):
            made = tarfile.TarInfo(f"bin/{command}")
            made.type, made.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(made)
    content = path.with_suffix(".layer")
    content.write_bytes(layer.getvalue())
    archive(name, content, {"Entrypoint": list(entry), "Env": ["PATH=/bin", *env]}, path)
    content.unlink()
    return path


@contextmanager
def node(
    plane: ControlPlane,
    folder: Path,
    images: Sequence[Path],
    gpus: Sequence[str],
    lends: Sequence[Path] = (),
) -> Iterator[None]:
    """Runs a ready node with these images and with GPUs of these UUIDs. Every container sees the folders in
    `lends` read-only, at the same paths."""
    binaries, group = programs(), f"pliant-test-{os.getpid()}"
    for each in ("kubelet", "sysctl", "cni", "logs", "containerd"):
        (folder / each).mkdir(parents=True)
    for name, value in SYSCTLS.items():
        (folder / "sysctl" / name.replace("/", "_")).write_text(value)
    pause = image(PAUSE, {}, folder / "pause.tar", entry=["sh", "-c", "while :; do sleep 3600; done"])
    _settings(folder, binaries, group, lends)
    _make_groups(group)
    told = {"url": plane.url, "token": plane.token, "folder": str(plane.folder), "pieces": str(plane.pieces)}
    (folder / "plane.json").write_text(json.dumps({**told, "etcd": plane.etcd}))
    names = f"{sys.executable} -m tests.kubernetes.names /run/netns/pods {DNS} {folder}/plane.json"
    script = [
        "set -e",
        "mount --make-rshared /",
        f"mount -t tmpfs tmpfs /run && mkdir {RUN}",
        f"mount -t tmpfs tmpfs /var/lib && mkdir {LIB}",
        f"mount --bind {folder}/kubelet {LIB}",
        f"mount --make-shared {LIB}",
        *(f"mount --bind {folder}/sysctl/{name.replace('/', '_')} /proc/sys/{name}" for name in SYSCTLS),
        f"containerd --config {folder}/containerd.toml >{folder}/containerd.log 2>&1 &",
        "for _ in $(seq 600); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done",
        *(f"ctr --namespace k8s.io images import {each} >/dev/null" for each in (pause, *images)),
        "ip netns add pods",
        "ip -n pods link set lo up",
        "ip -n pods link add pods type bridge",
        f"ip -n pods addr add {DNS}/16 dev pods",
        "ip -n pods link set pods up",
        f"{names} >{folder}/names.log 2>&1 &",
        f"mkdir -p {LIB}/device-plugins",
        f"plugin {LIB}/device-plugins {' '.join(gpus)} >{folder}/plugin.log 2>&1 &",
        f"exec kubelet --config={folder}/kubelet.json --kubeconfig={plane.kubeconfig}"
        f" --hostname-override={NAME} --cert-dir={folder}/certificates",
    ]
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    log = folder / "kubelet.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*command, "bash", "-c", "\n".join(script)],
            env=_own(binaries),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it only makes a system call
        )

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        found = plane.get(f"/api/v1/nodes/{NAME}") or {"status": {}}
        can = found["status"].get("allocatable", {}).get("nvidia.com/gpu")
        conditions = {it["type"]: it["status"] for it in found["status"].get("conditions", ())}
        return can == str(len(gpus)) and conditions.get("Ready") == "True"

    try:
        until(ready, f"the node is ready: see {log}")
        yield
    finally:
        process.kill()
        process.wait()
        _remove_groups(group)
        shutil.rmtree(folder / "containerd", ignore_errors=True)  # copies of images


LOOPBACK = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}' ;;
ADD)
  nsenter --net="$CNI_NETNS" ip link set lo up
  echo '{"cniVersion":"0.4.0"}' ;;
esac
"""
PODS = """#!/bin/sh
# Pods have a network of their own: they reach one another and the names, and nobody else does.
set -e
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}' ;;
ADD)
  exec 9>>"$0.given"
  flock 9
  echo >&9
  count=$(wc -l <"$0.given")
  address=SUBNET.$((count / 250)).$((count % 250 + 2))
  own=$(basename "$CNI_NETNS")
  ip -n pods link add "v$count" type veth peer name eth0 netns "$own"
  ip -n pods link set "v$count" master pods up
  ip -n "$own" addr add "$address/16" dev eth0
  ip -n "$own" link set eth0 up
  echo '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"'$address'/16"}]}' ;;
esac
"""


def _own(binaries: Path) -> dict[str, str]:
    """The environment of the node's programs."""
    path = f"{binaries}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": str(binaries), "PYTHONPATH": str(ROOT)}


def _settings(folder: Path, binaries: Path, group: str, lends: Sequence[Path]) -> None:
    cri = "plugins.'io.containerd.grpc.v1.cri'"
    unused = ["snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.aufs", "snapshotter.v1.devmapper"]
    unused += ["internal.v1.opt", "internal.v1.tracing", "tracing.processor.v1.otlp"]
    (folder / "containerd.toml").write_text(f"""
version = 2
root = "{folder}/containerd"
state = "{RUN}"
disabled_plugins = {json.dumps([f"io.containerd.{each}" for each in unused])}
[{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
[{cri}.cni]
  bin_dir = "{folder}/cni"
  conf_dir = "{folder}/cni"
[{cri}.containerd]
  default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{folder}/spec.json"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
""")
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "pods"}]}
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
    for name, text in (
        ("pods", PODS),
        ("loopback", LOOPBACK),
    ):  # containerd pulls the second one by itself
        plugin = folder / "cni" / name
        plugin.write_text(text.replace("SUBNET", SUBNET))
        plugin.chmod(0o755)
    said = subprocess.run(
        ["ctr", "oci", "spec"], check=True, stdout=subprocess.PIPE, env=_own(binaries)
    ).stdout
    spec = json.loads(said)
    options = ["rbind", "ro"]
    spec["mounts"] += [
        {"destination": str(it), "source": str(it), "type": "bind", "options": options} for it in lends
    ]
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())  # it may be below /run
    (port,) = free_ports(1)
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "enableControllerAttachDetach": False,
        "containerRuntimeEndpoint": f"unix://{RUN}/containerd.sock",
        "podLogsDir": f"{folder}/logs",
        "resolvConf": f"{folder}/resolv.conf",
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
    }
    (folder / "kubelet.json").write_text(json.dumps(kubelet))


def _hierarchies() -> list[Path]:
    return [it for it in CGROUPS.iterdir() if not it.is_symlink() and (it / "cgroup.procs").exists()]


def _make_groups(name: str) -> None:
    """Makes a control group in each hierarchy, with every processor."""
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / file).exists():
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def _remove_groups(name: str) -> None:
    deadline = time.monotonic() + 10
    for group in [hierarchy / name for hierarchy in _hierarchies()]:
        while group.exists() and time.monotonic() < deadline:  # the last processes are ending
            for each in sorted(group.rglob("*"), key=lambda path: -len(path.parts)):
                if each.is_dir():
                    with suppress(OSError):
                        each.rmdir()
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.02)
