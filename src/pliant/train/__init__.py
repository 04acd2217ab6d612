"""Elastic training in a job: the number of workers may change; batch, record order and loss stay the same.

import pliant.train as pt
job = pt.init()                                             # a world of one outside Pliant
model, optimizer, _ = job.prepare(model, optimizer)
data = job.data(dataset, global_batch=256, max_micro_batch=64)
for _epoch in job.epochs(10):
    for batch in data:
        with job.step(batch) as step:
            step.backward(loss(model(batch.x), batch.y))    # the optimizer steps once per global batch
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.train.data.record_files import RecordFile as RecordFile
    from pliant.train.data.record_files import write_records as write_records
    from pliant.train.data.rows import Rows as Rows
    from pliant.train.data.rows import csv_rows as csv_rows
    from pliant.train.errors import TrainError as TrainError
    from pliant.train.worker.job import Job as Job
    from pliant.train.worker.snapshot import load_weights as load_weights
    from pliant.train.worker.start import init as init

_HOMES = {
    "Job": "worker.job",
    "init": "worker.start",
    "load_weights": "worker.snapshot",
    "Rows": "data.rows",
    "csv_rows": "data.rows",
    "RecordFile": "data.record_files",
    "write_records": "data.record_files",
    "TrainError": "errors",
}
__all__ = ["Job", "RecordFile", "Rows", "TrainError", "csv_rows", "init", "load_weights", "write_records"]


def __getattr__(name: str) -> Any:
    # Lazily: torch takes seconds to import, and agents and the master need none of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pliant.train.{_HOMES[name]}"), name)
