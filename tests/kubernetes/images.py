"""Images for a test node: builds an archive of one layer, and runs a Containerfile's steps without a
container engine. The base image is put together from this machine's Python and programs.
"""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from glob import glob
from io import BytesIO
from pathlib import Path
from typing import Any

PROGRAMS = ("dash", "cat", "chmod", "cp", "env", "id", "install", "ls", "mkdir", "rm", "sleep", "touch")
"""Debian's programs in the base image of ours."""

LIBRARIES = (
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libnss_dns.so.2",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
)
NOT_TAKEN = ("site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "__pycache__", "config-3*")
SEARCHED = ("/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl")
"""This machine's files that steps see, as with container engines; `/etc/ssl` for its package index."""

Settings = dict[str, Any]


def libraries(program: Path) -> Mapping[str, Path]:
    """Path in an image -> each shared library that the program needs."""
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return {path.lstrip("/"): Path(path) for path in re.findall(r"(/\S+) \(0x", said)}


def archive(name: str, layer: Path, settings: Settings, path: Path) -> Path:
    """Writes an image with that one layer as a tar file."""
    with layer.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    config = {"architecture": "amd64", "os": "linux", "config": settings}
    config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        tar.add(layer, "layer.tar")
        for part, content in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            made = tarfile.TarInfo(part)
            made.size = len(data)
            tar.addfile(made, BytesIO(data))
    return path


def python_slim(root: Path) -> Settings:
    """Fills that folder like the image python:3-slim: a shell and the usual programs of Debian, Python and
    pip below /usr/local. Returns the settings of such an image."""
    for folder in ("bin", "sbin", "lib", "lib64", "local/bin"):
        (root / "usr" / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("etc", "dev", "proc", "sys"):
        (root / folder).mkdir()
    for link in ("bin", "sbin", "lib", "lib64"):
        (root / link).symlink_to(f"usr/{link}")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (root / "etc" / "ld.so.conf").write_text("\n".join(SEARCHED))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    stdlib, local = Path(sysconfig.get_path("stdlib")), root / "usr" / "local"
    shutil.copytree(stdlib, local / "lib" / version, symlinks=True, ignore=shutil.ignore_patterns(*NOT_TAKEN))
    packages = local / "lib" / version / "site-packages"
    packages.mkdir()
    pip = importlib.util.find_spec("pip")
    assert pip is not None and pip.origin is not None
    shutil.copytree(Path(pip.origin).parent, packages / "pip")
    (local / "bin" / "pip").write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    (local / "bin" / "pip").chmod(0o755)
    python = Path(sys.base_prefix) / "bin" / version
    shutil.copy(python, local / "bin" / version)
    for name in ("python", "python3"):
        (local / "bin" / name).symlink_to(version)
    _programs(root, [python, *(stdlib / "lib-dynload").glob("*.so")])
    subprocess.run(["chroot", root, "ldconfig"], check=True)
    return {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": ["python3"]}


def _programs(root: Path, also: Sequence[Path]) -> None:
    """Copies Debian's programs, and the libraries that they and the others need."""
    found = [Path("/usr/bin") / name for name in PROGRAMS]
    for each in found:
        shutil.copy(each, root / "usr" / "bin" / each.name)
    (root / "usr" / "bin" / "sh").symlink_to("dash")
    shutil.copy("/sbin/ldconfig", root / "usr" / "sbin" / "ldconfig")
    needed = {it for each in (*found, *also) if "tkinter" not in each.name for it in libraries(each).values()}
    folder = Path("/usr/lib/x86_64-linux-gnu")
    needed |= {folder / name for name in LIBRARIES}
    for each in needed | {it for lib in LIBRARIES for it in libraries(folder / lib).values()}:
        own = Path(sys.base_prefix) in each.parents and sys.base_prefix != "/usr"
        target = root / (f"usr/local/lib/{each.name}" if own else str(each).lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(each, target)


def steps(containerfile: Path) -> list[tuple[str, str]]:
    """(INSTRUCTION, the rest of the line), with continued lines joined."""
    text = re.sub(r"\\\n", " ", containerfile.read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def build(containerfile: Path, context: Path, root: Path, env: Mapping[str, str]) -> Settings:
    """Runs its steps in that empty folder; returns the image's settings. Only RUN steps see `env`, as with
    build arguments."""
    settings: Settings = {}
    for instruction, rest in steps(containerfile):
        match instruction:
            case "FROM":
                assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim", rest), rest
                settings = python_slim(root)
            case "COPY":
                *sources, target = rest.split()
                for found in (Path(it) for each in sources for it in glob(str(context / each))):
                    shutil.copy(found, root / target.lstrip("/"))
            case "RUN":
                _run(root, rest, {**dict(it.split("=", 1) for it in settings["Env"]), **env})
            case "USER":
                settings["User"] = rest
            case "ENV":
                settings["Env"] += shlex.split(rest)
            case "ENTRYPOINT" | "CMD":
                settings[instruction.capitalize()] = json.loads(rest)
            case _:
                raise AssertionError(f"{containerfile}: {instruction} is not known here")
    return settings


def _run(root: Path, command: str, env: Mapping[str, str]) -> None:
    """Runs a command as root in that folder, with this machine's network."""
    shown = [path for path in NETWORK if Path(path).exists()]
    script = ["set -e", "mount --make-rprivate /"]
    for path in ("/proc", "/dev", *shown):
        place = f"{root}{path}"
        script.append(f"{'mkdir -p' if Path(path).is_dir() else 'touch'} {place}")
        script.append(f"mount --rbind {path} {place}")
    script.append('exec chroot "$0" sh -c "$1"')
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", "\n".join(script), str(root), command],
        env={**env, "PATH": f"{env['PATH']}:{os.environ['PATH']}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"


def packed(name: str, root: Path, settings: Settings, path: Path) -> Path:
    """Packs that folder as an archive of an image."""
    layer = path.with_suffix(".layer")
    words = ["tar", "--numeric-owner", "--exclude=./proc/*", "--exclude=./dev/*", "-C", str(root)]
    subprocess.run([*words, "-cf", str(layer), "."], check=True)
    archive(name, layer, settings, path)
    layer.unlink()
    return path
