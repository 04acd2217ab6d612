"""The flags of a job, in the spellings of all ElasticDL clients."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CODECS = ("bytes", "tf_example")
TRAINING, EVALUATION, PREDICTION = "training", "evaluation", "prediction"  # the `mode` that a model file gets
MODES = {"train": TRAINING, "evaluate": EVALUATION, "predict": PREDICTION}  # by the client's verb
SYMBOLS = (  # what a model file may define; a flag of the same name gives the name used in the file
    "model",
    "feature_columns",
    "label_columns",
    "loss",
    "optimizer",
    "input_fn",
    "feed",
    "dataset_fn",
    "eval_metrics_fn",
    "callbacks",
    "on_applied",
)


@dataclass(frozen=True, slots=True)
class Flags:
    """The parsed flags of a job."""

    model_file: Path
    mode: str
    job_name: str
    train_data: str
    validation_data: str
    prediction_data: str
    codec: str
    workers: int
    epochs: int
    minibatch: int
    records_per_task: int
    grads_to_wait: int
    evaluation_steps: int
    checkpoint_steps: int
    keep_checkpoints: int
    checkpoint_dir: str
    output: str
    seed: int
    folder: str  # of a local job
    names: dict[str, str]  # symbol -> its name in the model file

    def records(self, mode: str) -> tuple[str, str]:
        """(place of the records for a mode: training, evaluation or prediction; the flag that gives it)."""
        return {
            TRAINING: (self.train_data, "train_data_dir"),
            EVALUATION: (self.validation_data, "validation_data_dir"),
            PREDICTION: (self.prediction_data, "prediction_data_dir"),
        }[mode]

    @property
    def global_batch(self) -> int:
        """Records of one update, over all workers."""
        return self.grads_to_wait * self.minibatch


def parse(words: Sequence[str]) -> Flags:
    """Parse a command line; for a wrong one, print a message and exit with code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m pliant.train.elasticdl", allow_abbrev=False, argument_default=""
    )
    add: Any = parser.add_argument
    add("--model_file", type=Path, required=True)
    add("--mode", choices=tuple(MODES), default="train")
    add("--job_name", default="job")
    add("--train_data_dir", "--training_data", dest="train_data")
    add("--validation_data_dir", "--validation_data", "--evaluation_data_dir", dest="validation_data")
    add("--prediction_data_dir", "--prediction_data", dest="prediction_data")
    add("--codec_type", dest="codec", choices=CODECS, default="bytes")
    add("--num_workers", "--num_worker", dest="workers", type=_least(1), default=1)
    add("--num_epochs", "--num_epoch", dest="epochs", type=_least(1), default=1)
    add("--minibatch_size", dest="minibatch", type=_least(1), default=64)
    add("--records_per_task", "--record_per_task", type=_least(1), default=1024)
    add("--grads_to_wait", type=_least(1), default=1)
    add("--evaluation_steps", type=_least(0), default=0)
    add("--checkpoint_steps", type=_least(0), default=0)
    add("--keep_checkpoint_max", dest="keep_checkpoints", type=_least(1), default=3)
    add("--checkpoint_dir")
    add("--output")
    add("--seed", type=int, default=0)
    add("--folder")
    for symbol in SYMBOLS:
        add(f"--{symbol}", metavar="NAME")
    given = vars(parser.parse_args(words))
    names = {symbol: given.pop(symbol) or symbol for symbol in SYMBOLS}
    flags = Flags(**given, names=names)
    where, flag = flags.records(MODES[flags.mode])
    if not where:
        parser.error(f"--mode={flags.mode} needs --{flag}")
    return flags


def _least(least: int) -> Any:
    def number(text: str) -> int:
        if not text.removeprefix("-").isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return number
