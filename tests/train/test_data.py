"""Datasets, record files and checkpoints: what is read, and the messages for what is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pliant.train.data.record_files import RecordFile, write_records
from pliant.train.data.rows import Rows, csv_rows
from pliant.train.errors import BadCheckpoint, BadData, BadSettings
from pliant.train.rendezvous.state import fingerprint, pack, unpack
from pliant.train.worker.checkpoint import Checkpoints, load


class Broken:
    """A dataset with records that cannot be read, or only at the second try."""

    def __init__(self, bad: set[int], flaky: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        self.bad, self.flaky, self.tries = bad, set(flaky), 0

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index in self.flaky:
            self.flaky.discard(index)
            raise OSError("try again")
        if index in self.bad:
            raise ValueError(f"record {index} is rotten")
        return torch.tensor([float(index)]), torch.tensor(index)


@pytest.mark.parametrize(
    "data",
    [
        torch.arange(10),
        np.arange(10),
        (torch.arange(10), np.arange(10)),
        {"x": torch.arange(10), "y": torch.arange(10)},
        [torch.tensor(i) for i in range(10)],
    ],
    ids=["tensor", "array", "pair", "dict", "indexable"],
)
def test_records_come_in_the_order_asked_for(data: Any) -> None:
    found = Rows(data).take([7, 0, 7])
    first = found["x"] if isinstance(found, dict) else found[0] if isinstance(found, tuple) else found
    assert first.tolist() == [7, 0, 7] and len(Rows(data)) == 10


def test_what_has_no_order_is_refused() -> None:
    with pytest.raises(BadData, match="can only be iterated"):
        Rows(iter([1, 2]))
    with pytest.raises(BadData, match=r"differ in length: \[2, 3\]"):
        Rows((torch.zeros(2), torch.zeros(3)))


def test_bad_records_are_told_from_bad_moments() -> None:
    batch, good, bad = Rows(Broken({3}, flaky={5})).whole([1, 3, 5])
    assert good == [1, 5] and batch[1].tolist() == [1, 5]
    assert bad == {3: "ValueError: record 3 is rotten"}


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,label,b\n1,0,2\n3,1,4.5\n")
    x, y = csv_rows(path, "label").take([1, 0])
    assert x.tolist() == [[3, 4.5], [1, 2]] and y.tolist() == [1, 0]
    with pytest.raises(BadData, match="no column 'target'; it has a, label, b"):
        csv_rows(path, "target")
    path.write_text("a,label\n1,0\nx,1\n")
    with pytest.raises(BadData, match="line 3: could not convert"):
        csv_rows(path, "label")
    path.write_text("a,label\n")
    with pytest.raises(BadData, match="no records"):
        csv_rows(path, "label")
    with pytest.raises(BadData, match="No such file"):
        csv_rows(tmp_path / "none.csv", "a")


def test_record_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.rec", tmp_path / "b.rec"
    assert write_records(first, [b"one", b"", b"three"]) == 3
    write_records(second, (str(i).encode() for i in range(100)))
    records = RecordFile(first, second)
    assert len(records) == 103 and [records[i] for i in (0, 1, 2, 3, 102)] == [
        b"one",
        b"",
        b"three",
        b"0",
        b"99",
    ]
    records.close()
    decoded = RecordFile(second, decode=lambda data: torch.tensor(int(data)))
    assert Rows(decoded).take([4, 2]).tolist() == [4, 2]
    decoded.close()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda d: d[:-1], "cut off: its index is missing"),
        (lambda d: d[: len(d) // 2], "cut off"),
        (lambda d: b"x" + d[1:], "is not a record file"),
        (lambda d: d[:-30] + b"\xff" + d[-29:], "is damaged"),
        (lambda d: b"", "is not a record file"),
    ],
)
def test_record_files_that_are_broken(tmp_path: Path, harm: Any, words: str) -> None:
    path = tmp_path / "a.rec"
    write_records(path, [b"one", b"two", b"three"])
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(BadData, match=words):
        RecordFile(path)


# -- checkpoints -----------------------------------------------------------------------------------------


def state(step: int) -> dict[str, Any]:
    tree = {"lr": 0.1, "betas": (0.9, 0.999), "state": {0: {"step": torch.tensor(float(step))}}, "none": None}
    return {"model": {"w": torch.full((3, 2), float(step)), "n": torch.tensor(step)}, "optimizers": [tree]}


def stored(folder: Path, *steps: int, keep: int = 3) -> Checkpoints:
    found = Checkpoints(folder, keep)
    for step in steps:
        found.write(step, state(step), {"model": "m", "settings": {}, "ledger": [{"generation": 1}]})
    return found


def test_a_checkpoint_gives_back_what_was_put_in(tmp_path: Path) -> None:
    path, found, manifest = stored(tmp_path, 5).newest("m") or (None, {}, {})
    assert path == tmp_path / "step-000000000005" and manifest["step"] == 5
    assert manifest["ledger"] == [{"generation": 1}]
    assert (
        found["model"]["w"].tolist() == state(5)["model"]["w"].tolist()
        and found["model"]["n"].dtype == torch.int64
    )
    assert found["optimizers"][0]["betas"] == (0.9, 0.999) and 0 in found["optimizers"][0]["state"]


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    stored(tmp_path, *range(1, 7), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000000000005", "step-000000000006"]


@pytest.mark.parametrize("file", ["state.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_a_broken_one_is_named_and_the_one_before_is_used(tmp_path: Path, file: str, harm: str) -> None:
    found = stored(tmp_path, 1, 2)
    path = tmp_path / "step-000000000002" / file
    data = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        half = len(data) // 2
        path.write_bytes(
            data[:half] if harm == "cut" else data[:half] + bytes([data[half] ^ 255]) + data[half + 1 :]
        )
    with pytest.warns(UserWarning, match=r"step-000000000002.*Using step-000000000001 instead"):
        used = found.newest("m")
    assert used is not None and used[2]["step"] == 1


def test_a_manifest_that_says_something_else_is_named(tmp_path: Path) -> None:
    stored(tmp_path, 1)
    file = tmp_path / "step-000000000001" / "manifest.json"
    file.write_text(file.read_text().replace('"step": 1', '"step": 7'))
    with pytest.raises(BadCheckpoint, match=r"manifest\.json is damaged"):
        load(file.parent)


def test_all_broken_is_an_error_and_so_is_another_model(tmp_path: Path) -> None:
    found = stored(tmp_path, 1)
    with pytest.raises(BadCheckpoint, match=r"holds another model.*a folder of its own"):
        found.newest("other")
    (tmp_path / "step-000000000001" / "state.safetensors").write_bytes(b"")
    with pytest.raises(BadCheckpoint, match=r"cut off: 0 of .*No older one is complete"):
        found.newest("m")
    assert Checkpoints(tmp_path / "empty").newest("m") is None


def test_what_was_not_finished_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure before the rename leaves only a hidden folder, which is never read."""
    found = stored(tmp_path, 1)
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(BadCheckpoint, match=r"Checkpoint of step 2 failed: no space left"):
        found.write(2, state(2), {"model": "m"})
    monkeypatch.undo()
    assert [p.name for p in found.found()] == ["step-000000000001"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, 1)
    path = tmp_path / "step-000000000001"
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(BadCheckpoint, match="newer Pliant"):
        load(path)


def test_what_only_a_pickle_could_carry_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"state\.hook is a function"):
        pack({"hook": lambda: 0}, [])
    tensors: list[torch.Tensor] = []
    tree = {"a": [1, (2.5, None)], 3: torch.ones(2), "s": np.float64(0.5)}
    again = unpack(json.loads(json.dumps(pack(tree, tensors))), tensors)
    assert again["a"] == [1, (2.5, None)] and again[3].tolist() == [1, 1] and again["s"] == 0.5


def test_a_fingerprint_is_of_the_shape_and_not_of_the_weights() -> None:
    assert (
        fingerprint(torch.nn.Linear(2, 3))
        == fingerprint(torch.nn.Linear(2, 3))
        != fingerprint(torch.nn.Linear(3, 2))
    )
