"""Checks an ElasticDL job without its ledger: by its ranks' logs, and by the same training in one process."""

from __future__ import annotations

import contextlib
import json
import runpy
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pliant.train.data.batches import positions, steps_per_epoch
from pliant.train.data.order import Order
from pliant.train.elasticdl.columns import BytesCodec
from pliant.train.elasticdl.source import open_records
from pliant.train.worker.checkpoint import read

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "elasticdl"
MNIST = EXAMPLES / "elasticdl" / "python" / "examples" / "mnist_functional_api.py"

# Appended to a model file: each rank logs the records of its share of each applied step.
LOGGING = """

import json as _json
import os as _os
import time as _time


def on_applied(step, record_ids):
    path = _os.path.join({folder!r}, _os.environ["PLIANT_TRAIN_WORKER"])
    with open(path, "a") as log:
        log.write(_json.dumps([step, record_ids]) + "\\n")
    until = _time.monotonic() + ({pause} if step < {half} else 20.0)
    while _os.path.exists({slow!r}) and _time.monotonic() < until:
        _time.sleep(min(0.05, {pause}))
"""


def logging_file(
    target: Path,
    folder: Path,
    *,
    model_file: Path = MNIST,
    slow: Path | None = None,
    pause: float = 0.05,
    half: int = 40,
) -> Path:
    """A copy of a model file that logs to `folder`, one file per worker, and takes `pause` seconds per step
    while the file `slow` exists. From step `half` on it takes 20 s, so that the job does not end before the
    test has finished with it, however busy the machine is."""
    folder.mkdir(parents=True, exist_ok=True)
    added = LOGGING.format(folder=str(folder), slow=str(slow or ""), pause=pause, half=half)
    target.write_text(model_file.read_text("utf-8") + added, "utf-8")
    return target


def logs(folder: Path) -> dict[str, dict[int, list[int]]]:
    """worker -> step -> records. Skips a line that a killed worker did not finish."""
    found: dict[str, dict[int, list[int]]] = {}
    for path in sorted(folder.iterdir()):
        steps = found.setdefault(path.name, {})
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError):
                step, ids = json.loads(line)
                steps[step] = ids
    return found


def check_exactly_once(
    folder: Path, records: int, batch: int, *, epochs: int = 1, seed: int = 0, killed: Collection[str] = ()
) -> None:
    """Asserts that every record of every epoch was consumed once. A killed rank may not have logged its last
    share, which then follows from (seed, epoch, step). What it logged and others redid counts as theirs."""
    found = logs(folder)
    unlogged = 0
    consumed: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(epochs)}
    for step in range(1, epochs * steps_per_epoch(records, batch) + 1):
        epoch, start, stop = positions(step - 1, records, batch)
        wanted = Order(records, seed, epoch).indices(start, stop).tolist()
        alive = [i for worker, steps in found.items() if worker not in killed for i in steps.get(step, ())]
        missing = Counter(wanted) - Counter(alive)
        if missing:
            dead = [i for worker in killed for i in found.get(worker, {}).get(step, ())]
            assert missing == Counter(dead) or not dead, (
                f"step {step}: {missing} is nobody's, {dead} the dead's"
            )
            unlogged += not dead
        assert not Counter(alive) - Counter(wanted), (
            f"step {step}: {Counter(alive) - Counter(wanted)} too many"
        )
        consumed[epoch].update(alive)
        consumed[epoch].update(missing)
    assert unlogged <= len(killed), "a rank that is killed leaves one step unlogged at most"
    for counts in consumed.values():
        assert len(counts) == records and set(counts.values()) == {1}


def replay(
    model_file: Path, data: str, batch: int, *, epochs: int = 1, seed: int = 0
) -> dict[str, torch.Tensor]:
    """The weights after the same training in this process with plain torch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    file: dict[str, Any] = runpy.run_path(str(model_file))
    model = file["model"] if isinstance(file["model"], torch.nn.Module) else file["model"]()
    optimizer = file["optimizer"](model.parameters())
    source = open_records(data, "train_data_dir")
    codec = BytesCodec(file["feature_columns"](), file["label_columns"](), data)
    for step in range(epochs * steps_per_epoch(len(source), batch)):
        epoch, start, stop = positions(step, len(source), batch)
        ids: Sequence[int] = Order(len(source), seed, epoch).indices(start, stop).tolist()
        features, labels = file["input_fn"]([codec.decode(source[i], i) for i in ids])
        optimizer.zero_grad()
        inputs = [torch.from_numpy(np.asarray(value)) for value in features.values()]
        file["loss"](model(*inputs), torch.from_numpy(labels)).backward()
        optimizer.step()
    torch.set_num_threads(threads)
    return dict(model.state_dict())


def difference(checkpoints: Path, weights: dict[str, torch.Tensor]) -> float:
    """The largest difference between a job's final weights and these."""
    final, _ = read(checkpoints / "final")
    assert final.keys() == weights.keys()
    return max(float((final[name] - weights[name]).abs().max()) for name in final)
