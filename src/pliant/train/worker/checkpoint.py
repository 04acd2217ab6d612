"""Checkpoints: tensors as safetensors, the rest as a JSON manifest, no pickle. Each is whole or absent."""

import errno
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
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # disk errors after which the next checkpoint may succeed


class Checkpoints:
    """The checkpoints of one job in `folder`; keeps the newest `keep`."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder
        self.keep = keep
        self._writer: threading.Thread | None = None
        self._step = -1  # of the checkpoint being written
        self._error: BaseException | None = None

    # -- writing ---------------------------------------------------------------------------------------

    def write(
        self, step: int, state: dict[str, Any], meta: dict[str, Any], *, wait: bool = True
    ) -> str | None:
        """Copy the state, then write it in a thread. The caller waits for the copy and for the previous
        checkpoint; returns what the method `wait` returns for that one. With `wait`, waits for this one too
        and raises BadCheckpoint if it fails."""
        trouble = self.wait()
        tensors: list[torch.Tensor] = []
        tree = pack(state, tensors)
        copies = {str(i): t.detach().to("cpu", copy=True).contiguous() for i, t in enumerate(tensors)}
        manifest = {"version": VERSION, "step": step, "tree": tree, **meta}
        self._step = step
        self._writer = threading.Thread(
            target=self._write, args=(self.folder / f"step-{step:012}", copies, manifest), name="checkpoint"
        )
        self._writer.start()
        if wait:
            self._writer.join()
            self._raise()
        return trouble

    def wait(self) -> str | None:
        """Wait for the checkpoint being written, then `look`."""
        if self._writer is not None:
            self._writer.join()
        return self.look()

    def look(self) -> str | None:
        """Without waiting: None, or why the last checkpoint failed if the next may succeed (a full disk).
        Raises BadCheckpoint if it failed for another reason."""
        if isinstance(self._error, OSError) and self._error.errno in _PASSING:
            text, self._error = f"Checkpoint of step {self._step} failed: {self._error}.", None
            return text
        self._raise()
        return None

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise BadCheckpoint(f"Checkpoint of step {self._step} failed: {error}") from error

    def _write(self, target: Path, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> None:
        try:
            save(target, tensors, manifest)
            for old in self.found()[self.keep :]:
                shutil.rmtree(old, ignore_errors=True)
        except BaseException as error:  # noqa: BLE001 - raised in the training thread: see look and wait
            self._error = error

    # -- reading ---------------------------------------------------------------------------------------

    def found(self) -> list[Path]:
        """The checkpoints' folders, newest first."""
        return sorted((p for p in self.folder.glob("step-*") if p.is_dir()), reverse=True)

    def newest(self, model: str | None = None) -> tuple[Path, dict[str, Any], dict[str, Any]] | None:
        """(folder, state, manifest) of the newest complete checkpoint; None if there is none. Skips a broken
        one with a warning. Raises BadCheckpoint if it is of another `model`, or if all are broken."""
        broken = []
        for path in self.found():
            try:
                state, manifest = load(path)
            except BadCheckpoint as error:
                broken.append(str(error))
                continue
            if model is not None and manifest["model"] != model:
                raise BadCheckpoint(
                    f"{path} holds another model ({manifest['model']}, this one is {model}): give this job a "
                    "folder of its own, or move that one away."
                )
            for text in broken:
                warnings.warn(f"{text} Using {path.name} instead.", stacklevel=2)
            return path, state, manifest
        if broken:
            raise BadCheckpoint(f"{broken[0]} No older one is complete; move it away to start from step 0.")
        return None


def save(target: Path, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> None:
    """Write a temporary folder, sync and rename it, so that `target` is complete whenever it exists."""
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
    if target.exists():  # the same step, written before a restart
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
        raise BadCheckpoint(
            f"{path} is not a complete checkpoint: {type(error).__name__}: {error}."
        ) from error


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(tensors by name, manifest). Raises BadCheckpoint with what is wrong."""
    from safetensors.torch import load as load_tensors

    try:
        manifest = json.loads((path / _MANIFEST).read_text("utf-8"))
        if manifest["version"] > VERSION:
            raise BadCheckpoint(f"{path} was written by a newer Pliant: use that one to read it.")
        if manifest.pop("checksum") != _checksum(manifest):
            raise BadCheckpoint(f"{path / _MANIFEST} is damaged: its checksum does not match.")
        known = manifest["files"][_TENSORS]
        data = (path / _TENSORS).read_bytes()
        if len(data) != known["bytes"]:
            raise BadCheckpoint(f"{path / _TENSORS} is cut off: {len(data)} of {known['bytes']} bytes.")
        if hashlib.blake2b(data).hexdigest() != known["blake2b"]:
            raise BadCheckpoint(f"{path / _TENSORS} is damaged: its checksum does not match the manifest.")
        return load_tensors(data), manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(
            f"{path} is not a complete checkpoint: {type(error).__name__}: {error}."
        ) from error
