"""Checkpoints: tensors as safetensors, the rest as a JSON manifest, no pickle. Whole or not there at all."""

import hashlib
import json
import os
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

from pliant.train.errors import BadCheckpoint
from pliant.train.rendezvous.state import pack, unpack

VERSION = 1
_TENSORS, _MANIFEST = "state.safetensors", "manifest.json"


class Checkpoints:
    """Those of one job in `folder`: the newest `keep` of them."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder
        self.keep = keep
        self._writer: threading.Thread | None = None
        self._error: Exception | None = None

    # -- writing ---------------------------------------------------------------------------------------

    def write(self, step: int, state: dict[str, Any], meta: dict[str, Any], *, wait: bool = True) -> None:
        """Copy the state, then write it beside the training; the caller waits for the copy only, unless
        `wait`."""
        tensors: list[torch.Tensor] = []
        tree = pack(state, tensors)
        copies = {str(i): t.detach().to("cpu", copy=True).contiguous() for i, t in enumerate(tensors)}
        self.settle()
        manifest = {"version": VERSION, "step": step, "tree": tree, **meta}
        self._writer = threading.Thread(
            target=self._write, args=(self.folder / f"step-{step:012}", copies, manifest), name="checkpoint"
        )
        self._writer.start()
        if wait:
            self.settle()

    def settle(self) -> None:
        """Wait for what is being written; raises what went wrong with it."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._error is not None:
            error, self._error = self._error, None
            raise BadCheckpoint(f"The checkpoint could not be written to {self.folder}: {error}") from error

    def _write(self, target: Path, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> None:
        try:
            save(target, tensors, manifest)
            for old in self.found()[self.keep :]:
                shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            self._error = error

    # -- reading ---------------------------------------------------------------------------------------

    def found(self) -> list[Path]:
        """Newest first."""
        return sorted((p for p in self.folder.glob("step-*") if p.is_dir()), reverse=True)

    def newest(self, model: str) -> tuple[Path, dict[str, Any], dict[str, Any]] | None:
        """(folder, state, manifest) of the newest whole one; None without any. One that is broken is named in
        a warning and passed over. Raises BadCheckpoint for one of another model, or if all are broken."""
        broken = []
        for path in self.found():
            try:
                state, manifest = load(path)
            except BadCheckpoint as error:
                broken.append(str(error))
                continue
            if manifest["model"] != model:
                raise BadCheckpoint(
                    f"{path} holds another model ({manifest['model']}, this one is {model}): give this "
                    f"job a folder "
                    "of its own, or move that one away."
                )
            for text in broken:
                warnings.warn(f"{text} Using {path.name} instead.", stacklevel=2)
            return path, state, manifest
        if broken:
            raise BadCheckpoint(
                f"{broken[0]} There is no older one that is whole; move it away to begin anew."
            )
        return None


def save(target: Path, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> None:
    """Write aside, sync, rename: `target` is whole whenever it is there."""
    from safetensors.torch import save_file

    aside = target.parent / f".{target.name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    save_file(tensors, aside / _TENSORS)
    data = (aside / _TENSORS).read_bytes()
    files = {_TENSORS: {"bytes": len(data), "blake2b": hashlib.blake2b(data).hexdigest()}}
    full = {**manifest, "files": files}
    (aside / _MANIFEST).write_text(json.dumps({**full, "checksum": _checksum(full)}), "utf-8")
    for name in (_TENSORS, _MANIFEST, "."):
        _sync(aside / name)
    if target.exists():  # of the same step, from before a restart
        former = target.with_name(f".{target.name}.{os.getpid()}.old")
        target.rename(former)
        aside.rename(target)
        shutil.rmtree(former)
    else:
        aside.rename(target)
    _sync(target.parent)


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(manifest, sort_keys=True).encode(), digest_size=16).hexdigest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(state, manifest). Raises BadCheckpoint with what is wrong."""
    tensors, manifest = read(path)
    try:
        return unpack(manifest["tree"], [tensors[str(i)] for i in range(len(tensors))]), manifest
    except (KeyError, ValueError, TypeError) as error:
        raise BadCheckpoint(f"{path} is no whole checkpoint: {type(error).__name__}: {error}.") from error


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(tensors by name, manifest). Raises BadCheckpoint with what is wrong."""
    from safetensors.torch import load as load_tensors

    try:
        manifest = json.loads((path / _MANIFEST).read_text("utf-8"))
        if manifest["version"] > VERSION:
            raise BadCheckpoint(f"{path} was written by a newer Pliant: use that one to read it.")
        if manifest.pop("checksum") != _checksum(manifest):
            raise BadCheckpoint(f"{path / _MANIFEST} was damaged: its checksum is not its own.")
        known = manifest["files"][_TENSORS]
        data = (path / _TENSORS).read_bytes()
        if len(data) != known["bytes"]:
            raise BadCheckpoint(f"{path / _TENSORS} is cut off: {len(data)} of {known['bytes']} bytes.")
        if hashlib.blake2b(data).hexdigest() != known["blake2b"]:
            raise BadCheckpoint(f"{path / _TENSORS} was damaged: its checksum is not that of the manifest.")
        return load_tensors(data), manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f"{path} is no whole checkpoint: {type(error).__name__}: {error}.") from error
