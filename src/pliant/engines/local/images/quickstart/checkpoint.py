"""The checkpoint file: one line of JSON, then parameters and velocity as little-endian float64."""

import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from .digits import Floats
from .settings import PARAMETERS

NAME: Final = "quickstart.checkpoint"
_FORMAT: Final = "pliant-quickstart-1"


class CheckpointError(Exception):
    """The file is not a checkpoint of this run; the message says why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    step: int  # the next step to run: all earlier ones are in the parameters
    parameters: Floats
    velocity: Floats


def save(folder: Path, seed: int, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint in `folder`, made if missing: whole or not at all, also if power is lost.

    Raises OSError; the previous checkpoint is then still there.
    """
    data = np.concatenate((checkpoint.parameters, checkpoint.velocity)).astype("<f8").tobytes()
    head = {"format": _FORMAT, "step": checkpoint.step, "seed": seed}
    head |= {"bytes": len(data), "crc32": zlib.crc32(data)}
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{NAME}.tmp"
    with unfinished.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / NAME)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(folder: Path, seed: int) -> Checkpoint | None:
    """The checkpoint in `folder`, or None. Raises CheckpointError, and OSError if it cannot be read."""
    try:
        content = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    line, _, data = content.partition(b"\n")
    try:
        head = json.loads(line)
        known = head["format"] == _FORMAT
        step, made_with, size, checksum = (int(head[key]) for key in ("step", "seed", "bytes", "crc32"))
    except (ValueError, KeyError, TypeError):
        raise CheckpointError("it is not a checkpoint of the quickstart") from None
    if not known or size != 2 * PARAMETERS * 8 or step < 0:
        raise CheckpointError("it is of another version of the quickstart")
    if len(data) != size:
        raise CheckpointError(f"it is cut off: {len(data)} of {size} bytes of parameters")
    if zlib.crc32(data) != checksum:
        raise CheckpointError("its checksum is wrong")
    if made_with != seed:
        raise CheckpointError(f"it was made with seed {made_with}, this run has seed {seed}")
    parameters, velocity = np.frombuffer(data, dtype="<f8").astype(np.float64).reshape(2, PARAMETERS)
    return Checkpoint(step, parameters, velocity)


def move_aside(folder: Path) -> Path:
    """Rename the checkpoint to the first free NAME.unusable-N; returns the new path. Raises OSError."""
    number = 1
    while (aside := folder / f"{NAME}.unusable-{number}").exists():
        number += 1
    return (folder / NAME).rename(aside)
