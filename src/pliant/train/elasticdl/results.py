"""The results of evaluation and prediction: one file per block of records, then one result of all."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from pliant.train.elasticdl.flags import Flags
from pliant.train.errors import BadData, TrainError


def blocks(records: int, size: int) -> int:
    """The number of blocks of `size` that hold all records."""
    return -(-records // size)


class Parts:
    """One file per block. A block computed again, because its first worker was lost, replaces the file."""

    def __init__(self, folder: Path, mode: str) -> None:
        self._folder = folder / f"{mode}-parts"

    def write(self, number: int, value: Any) -> None:
        """Write a block's result, whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = self._folder / f".{number}.{os.getpid()}"
        aside.write_text(json.dumps(value), "utf-8")
        aside.rename(self._path(number))

    def read(self, number: int) -> Any:
        """A block's result. Raises TrainError if it cannot be read."""
        try:
            return json.loads(self._path(number).read_text("utf-8"))
        except OSError as error:
            raise TrainError(f"Block {number} was done and its result is gone: {error}") from error

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:09}.json"


def metrics(parts: Parts, count: int) -> dict[str, float]:
    """The metrics' means over all records, and the number of records."""
    sums: dict[str, float] = {}
    for number in range(count):
        for name, value in parts.read(number).items():
            sums[name] = sums.get(name, 0.0) + value
    records = sums.pop("records")
    return {"records": records, **{name: value / records for name, value in sorted(sums.items())}}


def write_predictions(parts: Parts, count: int, target: Path) -> int:
    """Write one CSV file with a row per record, in order. Returns the number of rows. Raises BadData."""
    target.mkdir(parents=True, exist_ok=True)
    aside, rows, header = target / f".predictions.{os.getpid()}", 0, ""
    with aside.open("w", encoding="utf-8", newline="") as out:
        for number in range(count):
            for record, values in parts.read(number):
                names = [f"{n}_{i}" if len(v) > 1 else n for n, v in values.items() for i in range(len(v))]
                line = ",".join(["record", *names])
                if not header:
                    header = line
                    out.write(header + "\r\n")
                if line != header:
                    raise BadData(f"The model gave {line} for record {record}, and {header} for others")
                numbers = [f"{x:.9g}" for column in values.values() for x in column]
                out.write(",".join([str(record), *numbers]) + "\r\n")
                rows += 1
        out.flush()
        os.fsync(out.fileno())
    aside.rename(target / "predictions.csv")
    return rows


def finish(flags: Flags, folder: Path, records: int, checkpoints: Path | None) -> str:
    """Make the job's result from its workers' files in `folder`. Returns a sentence about it, or ""."""
    parts, count = Parts(folder, flags.mode), blocks(records, flags.records_per_task)
    output = Path(flags.output) if flags.output else None
    if flags.mode == "train":
        if output is None or checkpoints is None:
            return ""
        _copy(checkpoints / "final", output)
        return f"the model is in {output}"
    if flags.mode == "evaluate":
        found = metrics(parts, count)
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            (output / "metrics.json").write_text(json.dumps(found, indent=1), "utf-8")
        return ", ".join(f"{name} {value:.6g}" for name, value in found.items())
    target = output or (checkpoints or folder) / "predictions"
    rows = write_predictions(parts, count, target)
    return f"{rows} predictions are in {target / 'predictions.csv'}"


def _copy(source: Path, target: Path) -> None:
    """Copy a folder's files into another, each whole or not at all; other files there stay."""
    if not source.is_dir():
        raise TrainError(f"The final model is not in {source}: was it moved?")
    target.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        aside = target / f".{file.name}.{os.getpid()}"
        shutil.copyfile(file, aside)
        aside.rename(target / file.name)
