"""Incomplete model files and data that does not fit: the message names the file and the line."""

from __future__ import annotations

import contextlib
import struct
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pliant.cli.elasticdl.flags import FLAGS
from pliant.train.data.record_files import write_records
from pliant.train.elasticdl import numeric_column
from pliant.train.elasticdl.__main__ import main
from pliant.train.elasticdl.columns import BytesCodec, columns_of
from pliant.train.elasticdl.contract import BadModelFile, check
from pliant.train.elasticdl.example_proto import ExampleCodec, parse
from pliant.train.elasticdl.feed import rows_of
from pliant.train.elasticdl.flags import EVALUATION, PREDICTION, SYMBOLS, TRAINING, Flags
from pliant.train.elasticdl.flags import parse as parse_flags
from pliant.train.elasticdl.modelfile import ModelFile, forward
from pliant.train.elasticdl.source import open_records
from pliant.train.errors import BadData, BadSettings, TrainError
from tests.train.elasticdl_jobs import MNIST

NAMES = {symbol: symbol for symbol in SYMBOLS}
WHOLE = """
import numpy as np
import torch

model = torch.nn.Linear(2, 1)

def feature_columns():
    return [("x", (2,), "float32")]

def label_columns():
    return [("y", 1, "float32")]

def input_fn(records):
    return {"x": [r["x"] for r in records]}, np.stack([r["y"] for r in records])

def loss(output, labels):
    return torch.nn.functional.mse_loss(output, labels)

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)
"""


def written(folder: Path, *changes: tuple[str, str], more: str = "") -> Path:
    text = WHOLE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / "m.py"
    path.write_text(text + textwrap.dedent(more))
    return path


def loaded(path: Path, mode: str = "train", **names: str) -> ModelFile:
    return ModelFile(path, mode, {**NAMES, **names})


def flags(path: Path, data: Path | str, *more: str) -> Flags:
    return parse_flags([f"--model_file={path}", f"--train_data_dir={data}", "--minibatch_size=2", *more])


def records(folder: Path, rows: list[tuple[float, float, float]]) -> Path:
    folder.mkdir(exist_ok=True)
    write_records(folder / "data-0", [np.array(row, "<f4").tobytes() for row in rows])
    return folder


# -- what is missing in a file, seen without running it -----------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            "model = ",
            "modell = ",
            r"m.py does not define model\. Needed is model: a torch.*modell, in line 5",
        ),
        ("def loss(", "def los(", r"Needed is loss\(output, labels\): .*Did you mean los, in line 16"),
        (
            "def optimizer(",
            "def optimiser(",
            r"Needed is optimizer\(parameters\).*mean optimiser, in line 19",
        ),
        (
            "def input_fn(",
            "def inputs(",
            r"input_fn \(or feed, or dataset_fn\)\. Needed is input_fn\(records",
        ),
        ("def feature_columns(", "def columns(", r"feature_columns\. Needed is feature_columns\(\): a list"),
        ("def label_columns(", "def labels(", r"does not define label_columns\."),
    ],
)
def test_a_function_is_missing(tmp_path: Path, before: str, after: str, words: str) -> None:
    path = written(tmp_path, (before, after))
    for see in (lambda: check(path, "train", NAMES), lambda: loaded(path)):
        with pytest.raises(BadModelFile, match=words) as bad:
            see()
        assert str(path) in str(bad.value)


def test_what_each_mode_needs(tmp_path: Path) -> None:
    path = written(
        tmp_path, ("def loss(", "def _l("), ("def optimizer(", "def _o("), ("def label_columns(", "def _c(")
    )
    check(path, "predict", NAMES)
    with pytest.raises(BadModelFile, match="does not define loss"):
        check(path, "evaluate", NAMES)


def test_renamed_imported_and_conditional_names_are_found(tmp_path: Path) -> None:
    path = written(tmp_path, ("def loss(", "def my_loss("))
    check(path, "train", {**NAMES, "loss": "my_loss"})
    with pytest.raises(
        BadModelFile, match=r"does not define their_loss. Needed is their_loss\(output, labels\)"
    ):
        check(path, "train", {**NAMES, "loss": "their_loss"})
    path = written(
        tmp_path, ("def loss(", "def _l("), more="try:\n    from a import b as loss\nexcept E:\n    pass\n"
    )
    check(path, "train", NAMES)
    path = written(tmp_path, ("def loss(", "def _l("), more="from a import *\n")
    check(path, "train", NAMES)  # only running it can tell


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def loss(:\n", r"m.py, line 1: invalid syntax\n    def loss\(:"),
        ("x = 1\n  y = 2\n", r"m.py, line 2: unexpected indent"),
        ("", r"does not define model.*It defines nothing"),
    ],
)
def test_no_python(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "m.py"
    path.write_text(text)
    with pytest.raises(BadModelFile, match=words):
        check(path, "train", NAMES)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=r"There is no model file .*none.py: check --model_file"):
        check(tmp_path / "none.py", "train", NAMES)
    with pytest.raises(BadModelFile, match="is a folder: name the Python file in it"):
        check(tmp_path, "train", NAMES)


def test_an_error_while_the_file_runs_names_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, more="\nint('seven')\n")
    with pytest.raises(BadModelFile, match=r"m.py, line 22: ValueError: invalid literal.*\nTraceback"):
        loaded(path)


# -- what is made of it -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    ["model = torch.nn.Linear(2, 1)", "def model():\n    return torch.nn.Linear(2, 1)",
     "class model(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(2, 1)"],
    ids=["module", "function", "class"],
)  # fmt: skip
def test_a_model_is_a_module_or_makes_one(tmp_path: Path, model: str) -> None:
    assert isinstance(
        loaded(written(tmp_path, ("model = torch.nn.Linear(2, 1)", model))).model(), torch.nn.Linear
    )


@pytest.mark.parametrize(
    ("optimizer", "schedules"),
    [
        ("def optimizer(model):\n    return torch.optim.Adam(model.parameters())", False),
        ("def optimizer(lr=0.1):\n    return torch.optim.SGD(model.parameters(), lr=lr)", False),
        ("def optimizer():\n    return lambda parameters: torch.optim.SGD(parameters, lr=0.1)", False),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", False),
        ("def optimizer(p):\n    o = torch.optim.SGD(p, lr=0.1)\n"
         "    return o, torch.optim.lr_scheduler.StepLR(o, 5)", True),
    ],
    ids=["of the model", "finds it", "waits for parameters", "made already", "with a scheduler"],
)  # fmt: skip
def test_forms_of_an_optimizer(tmp_path: Path, optimizer: str, schedules: bool) -> None:
    given = "def optimizer(parameters):\n    return torch.optim.SGD(parameters, lr=0.1)"
    file = loaded(written(tmp_path, (given, optimizer)))
    model = file.model()
    made, scheduler = file.optimizer(model)
    assert [p for group in made.param_groups for p in group["params"]] == list(model.parameters())
    assert (scheduler is not None) == schedules


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("return torch.optim.SGD(parameters, lr=0.1)", "return 1", "optimizer in .* is wrong: it gave a int"),
        (
            "return torch.optim.SGD(parameters, lr=0.1)",
            "return torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)",
            "it holds none of the model's parameters: take them as argument",
        ),
        ("model = torch.nn.Linear(2, 1)", "model = 7", "model in .*m.py is wrong: it is a int. Needed is"),
        ("def loss(output, labels):", "def loss(output):", r"loss in .*m.py is wrong: it takes \(output\)"),
        ("return torch.nn.functional.mse_loss(output, labels)", "return 1", "it gave a int, not a tensor"),
        ('("x", (2,), "float32")', "3", r"feature_columns\(\) of .*m.py has 3 among its columns"),
        ('[("x", (2,), "float32")]', "None", r"feature_columns\(\) of .*m.py returned a NoneType"),
        ('"float32")]\n\ndef label', '"text")]\n\ndef label', "'x' has the dtype 'text', which NumPy"),
    ],
)  # fmt: skip
def test_a_part_of_the_wrong_kind(tmp_path: Path, before: str, after: str, words: str) -> None:
    file = loaded(written(tmp_path, (before, after)))

    def use() -> None:
        file.optimizer(file.model())
        file.loss()(torch.zeros(1), torch.zeros(1))
        file.codec("bytes", "data", labels_optional=False)

    with pytest.raises(TrainError, match=words):
        use()


def test_a_loss_gets_its_arguments_by_what_they_are_called(tmp_path: Path) -> None:
    for names in ("output, labels", "labels, predictions", "y_true, y_pred"):
        given = "output" if "output" in names else names.split(", ")[1]
        more = f"\ndef loss({names}):\n    return {given}\n"
        loss = loaded(written(tmp_path, more=more)).loss()
        assert loss(torch.tensor([3.0, 5.0]), torch.tensor([0.0, 0.0])) == 4, names


def test_features_in_a_dict_go_by_name_or_alone() -> None:
    class Two(torch.nn.Module):
        def forward(self, wide: torch.Tensor, deep: torch.Tensor) -> torch.Tensor:
            return wide - deep

    model, one = Two(), torch.ones(1)
    assert forward(model, model, {"deep": one, "wide": 3 * one}) == 2
    same = torch.nn.Identity()
    assert forward(same, same, {"image": one}) is one
    many = {"a": one, "b": one}
    assert forward(same, same, many) is many


# -- data ---------------------------------------------------------------------------------------------------


def test_raw_rows_become_minibatches(tmp_path: Path) -> None:
    data = records(tmp_path / "data", [(1, 2, 3), (4, 5, 6)])
    file = loaded(written(tmp_path))
    features, labels = rows_of(file, flags(file.path, data), TRAINING).take([1, 0])
    assert features["x"].tolist() == [[4, 5], [1, 2]] and labels.tolist() == [[6], [3]]


def test_feed_is_told_the_mode_and_predictions_need_no_labels(tmp_path: Path) -> None:
    feed = """
    def feed(records, mode):
        x = [r["x"] for r in records]
        return {"x": x}, [len(mode)] * len(x)
    """
    data = records(tmp_path / "data", [(1, 2, 3)])
    file = loaded(written(tmp_path, more=feed))
    wanted = flags(file.path, data, f"--validation_data_dir={data}")
    assert rows_of(file, wanted, TRAINING).take([0])[1].tolist() == [len("training")]
    assert rows_of(file, wanted, EVALUATION).take([0])[1].tolist() == [len("evaluation")]

    short = tmp_path / "short"
    short.mkdir()
    write_records(short / "data", [np.array([1, 2], "<f4").tobytes()])
    words = ["--mode=predict", f"--prediction_data_dir={short}"]
    made = rows_of(file, parse_flags([f"--model_file={file.path}", *words]), PREDICTION).take([0])
    assert made[0]["x"].tolist() == [[1, 2]]


def test_dataset_fn_makes_a_dataset_of_records(tmp_path: Path) -> None:
    dataset = """
    class Halves(torch.utils.data.Dataset):
        def __init__(self, inner): self.inner = inner
        def __len__(self): return len(self.inner) // 2
        def __getitem__(self, i): return self.inner[i]["x"].copy(), self.inner[i]["y"].copy()

    def dataset_fn(dataset, mode):
        return Halves(dataset)
    """
    data = records(tmp_path / "data", [(1, 2, 3), (4, 5, 6)])
    file = loaded(written(tmp_path, more=dataset))
    rows = rows_of(file, flags(file.path, data), TRAINING)
    assert len(rows) == 1 and rows.take([0])[0].tolist() == [[1, 2]]
    with pytest.raises(BadSettings, match=r"dataset_fn\(\) of .*m.py left none of the 1 records"):
        rows_of(file, flags(file.path, records(tmp_path / "one", [(1, 2, 3)])), TRAINING)


@pytest.mark.parametrize(
    ("input_fn", "words"),
    [
        ("return 5", r"input_fn\(\) of .*m.py gave a int, it should be \(features, labels\)"),
        ("return [1, 2, 3], [1, 2]", r"was given 2 records and made a tensor of shape \[3\]"),
        ("return ['a', 'b'], [1, 2]", r"gave a list that is no tensor"),
        ("return records[0]['z'], 1", r"m.py, line 14, in input_fn\(\): KeyError: 'z'"),
    ],
)
def test_an_input_fn_that_is_wrong(tmp_path: Path, input_fn: str, words: str) -> None:
    given = 'return {"x": [r["x"] for r in records]}, np.stack([r["y"] for r in records])'
    file = loaded(written(tmp_path, (given, input_fn)))
    data = records(tmp_path / "data", [(1, 2, 3), (4, 5, 6)])
    with pytest.raises(TrainError, match=words):
        rows_of(file, flags(file.path, data), TRAINING).take([0, 1])


def test_a_record_of_the_wrong_length_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_records(data / "a", [bytes(12), bytes(11)])
    file = loaded(written(tmp_path))
    words = r"Record 1 of .*data has 11 bytes, the columns take 12 \(x float32\[2\] = 8, y float32\[1\] = 4\)"
    with pytest.raises(BadData, match=words):
        rows_of(file, flags(file.path, data), TRAINING).whole([0, 1])


def test_columns_of_all_kinds() -> None:
    class Theirs:
        key, shape, dtype = "z", [3], torch.int64

    found = columns_of([numeric_column("x", 2, "uint8"), ("y",), Theirs()], "here")
    assert [str(column) for column in found] == ["x uint8[2]", "y float32", "z int64[3]"]
    raw = bytes([7, 8]) + np.float32(1.5).tobytes() + np.array([1, -2, 3], "<i8").tobytes()
    values = BytesCodec(found[:2], found[2:], "here").decode(raw, 0)
    assert values["x"].tolist() == [7, 8] and values["y"] == 1.5 and values["z"].tolist() == [1, -2, 3]
    with pytest.raises(BadSettings, match="two columns called 'x'"):
        columns_of([("x",), ("x",)], "here")
    with pytest.raises(BadSettings, match=r"shape \[0\]: every side is at least 1"):
        numeric_column("x", 0)
    with pytest.raises(BadSettings, match="only numbers and booleans"):
        numeric_column("x", 1, "datetime64[s]")


# -- tf.train.Example ---------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def example(features: Mapping[str, tuple[int, bytes]]) -> bytes:
    entries = b"".join(
        field(1, field(1, name.encode()) + field(2, field(kind, values)))
        for name, (kind, values) in features.items()
    )
    return field(1, entries)


WRITTEN = example(
    {
        "image": (1, field(1, bytes([1, 2, 3, 4]))),
        "weight": (2, field(1, struct.pack("<2f", 0.5, -1.5))),
        "loose": (2, b"\x0d" + struct.pack("<f", 2.5)),
        "label": (3, field(1, varint(7) + varint(-1))),
        "single": (3, varint(1 << 3) + varint(300)),
        "empty": (3, b""),
    }
)


def test_an_example_is_read() -> None:
    assert WRITTEN.startswith(b"\x0a"), "field 1, length-delimited"
    found = parse(WRITTEN)
    plain = {name: list(values) for name, values in found.items()}
    assert plain == {
        "image": [bytes([1, 2, 3, 4])],
        "weight": [0.5, -1.5],
        "loose": [2.5],
        "label": [7, -1],
        "single": [300],
        "empty": [],
    }
    columns = [numeric_column("image", (2, 2), "uint8"), numeric_column("weight", 2)]
    decoded = ExampleCodec(columns, [numeric_column("label", 2, "int32")], "here").decode(WRITTEN, 0)
    assert decoded["image"].tolist() == [[1, 2], [3, 4]] and decoded["label"].tolist() == [7, -1]
    assert set(ExampleCodec([], [], "here").decode(WRITTEN, 0)) == set(found)


@pytest.mark.parametrize(
    ("record", "column", "words"),
    [
        (WRITTEN[:-3], ("label", 2), "Record 4 of here is no tf.train.Example: a field is cut off"),
        (bytes(785), ("label", 2), "Record 4 of here (is no tf.train.Example|has no feature)"),
        (WRITTEN, ("missing",), "Record 4 of here has no feature 'missing'; it has empty, image, label"),
        (WRITTEN, ("label", 3), r"feature label float32\[3\] has 2 values, not 3"),
        (WRITTEN, ("image", 3, "uint8"), r"feature image uint8\[3\] has 4 bytes, not 3"),
    ],
)
def test_no_example(record: bytes, column: tuple[Any, ...], words: str) -> None:
    with pytest.raises(BadData, match=words):
        ExampleCodec([numeric_column(*column)], [], "here").decode(record, 4)


def test_every_cut_and_every_flipped_byte_is_read_or_refused() -> None:
    codec = ExampleCodec([], [], "here")
    for at in range(len(WRITTEN)):
        for broken in (WRITTEN[:at], WRITTEN[:at] + bytes([WRITTEN[at] ^ 0xFF]) + WRITTEN[at + 1 :]):
            with contextlib.suppress(BadData):  # nothing else may be raised
                codec.decode(broken, 0)


# -- where records come from --------------------------------------------------------------------------------


def test_a_folder_is_read_whole_and_in_order(tmp_path: Path) -> None:
    for name, row in (("data-1", b"b"), ("data-0", b"a"), (".half", b"x"), ("_SUCCESS", b"x")):
        write_records(tmp_path / name, [row])
    found = open_records(str(tmp_path), "train_data_dir")
    assert [found[i] for i in range(len(found))] == [b"a", b"b"]


def test_no_data(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    write_records(nothing / "data-0", [])
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "a.csv").write_text("1,2\n")
    for where, words in (
        (
            tmp_path / "none",
            "--train_data_dir=.*none: there is no such folder. Make it, or try .*digits:60000",
        ),
        (empty, "the folder holds no record files"),
        (nothing, "1 record file without a record"),
        (stranger, "a.csv is not a record file"),
        ("digits:many", "digits:many: write how many records, as in digits:60000"),
        ("digits:0", "digits:0: write how many records"),
    ):
        with pytest.raises(BadData, match=words):
            open_records(str(where), "train_data_dir")


def test_digits_in_the_shape_of_mnist() -> None:
    many, held_out = open_records("digits:3001", "x"), open_records("digits:test", "x")
    assert (len(many), len(held_out)) == (3001, 297)
    assert many[0] == many[1500] == many[3000] != many[1]
    assert {len(many[i]) for i in (0, 1, 1499)} == {28 * 28 + 1}
    labels = {many[i][-1] for i in range(1500)}
    assert labels == set(range(10))
    image = np.frombuffer(many[0][:-1], np.uint8).reshape(28, 28)
    assert image[:2].sum() == 0 and image.max() > 200
    with pytest.raises(IndexError):
        many[3001]


# -- the command line ---------------------------------------------------------------------------------------


def test_both_spellings_of_the_flags() -> None:
    old = parse_flags(
        ["--model_file=m", "--train_data_dir=d", "--num_worker=3", "--num_epoch=2", "--record_per_task=7"]
    )
    new = parse_flags(
        ["--model_file=m", "--training_data=d", "--num_workers=3", "--num_epochs=2", "--records_per_task=7"]
    )
    assert old == new and (old.workers, old.epochs, old.records_per_task) == (3, 2, 7)
    assert (
        parse_flags(
            ["--model_file=m", "--train_data_dir=d", "--grads_to_wait=2", "--minibatch_size=10"]
        ).global_batch
        == 20
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model_file=m"], "--mode=train needs --train_data_dir"),
        (
            ["--model_file=m", "--mode=predict", "--train_data_dir=d"],
            "--mode=predict needs --prediction_data_dir",
        ),
        (
            ["--model_file=m", "--train_data_dir=d", "--grads_to_wait=0"],
            "'0' is not a whole number from 1 on",
        ),
        (["--model_file=m", "--train_data_dir=d", "--minibatch_size=ten"], "'ten' is not a whole number"),
        (["--model_file=m", "--train_data_dir=d", "--codec_type=csv"], "invalid choice: 'csv'"),
        (["--train_data_dir=d"], "required: --model_file"),
    ],
)
def test_a_wrong_command_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", *words])
    assert end.value.code == 2 and said in capsys.readouterr().err


def test_no_role_and_no_task(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([]) == 2 and "master   the task that leads a job" in capsys.readouterr().err
    monkeypatch.delenv("PLIANT_ATTEMPT", raising=False)
    assert main(["master", f"--model_file={MNIST}", "--train_data_dir=digits:20"]) == 1
    said = capsys.readouterr().err
    assert "This is no task of the scheduler" in said and "python -m pliant.train.elasticdl local" in said


def test_the_runner_knows_each_flag_that_the_client_passes_on() -> None:
    values = {"codec": "tf_example", "count": "3", "least0": "0"}
    passed = [f"--{flag.key}={values.get(flag.kind, 'some')}" for flag in FLAGS if flag.passed]
    parse_flags(["--model_file=model.py", *passed])
    symbols = {flag.key for flag in FLAGS if flag.about == f"Name of {flag.key} in the model file."}
    assert symbols == set(SYMBOLS)
