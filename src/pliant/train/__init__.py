"""Elastic training inside a job: workers come and go; batch, order of the records and loss do not change.

import pliant.train as pt
job = pt.init()                                             # a world of one outside Pliant
model, optimizer, _ = job.prepare(model, optimizer)
data = job.data(dataset, global_batch=256, max_micro_batch=64)
for _epoch in job.epochs(10):
    for batch in data:
        with job.step(batch) as step:
            step.backward(loss(model(batch.x), batch.y))    # the optimizer steps when the batch is whole
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.train.data import Rows as Rows
    from pliant.train.data import csv_rows as csv_rows
    from pliant.train.errors import TrainError as TrainError
    from pliant.train.job import Job as Job
    from pliant.train.job import init as init
    from pliant.train.records import RecordFile as RecordFile
    from pliant.train.records import write_records as write_records

_HOMES = {
    "Job": "job",
    "init": "job",
    "Rows": "data",
    "csv_rows": "data",
    "RecordFile": "records",
    "write_records": "records",
    "TrainError": "errors",
}
__all__ = ["Job", "RecordFile", "Rows", "TrainError", "csv_rows", "init", "write_records"]


def __getattr__(name: str) -> Any:
    # Lazily: torch takes seconds to import, and agents and the master need none of it.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"pliant.train.{_HOMES[name]}"), name)
