"""The quickstart's parts, in this process: data, network, pace, settings, checkpoint file."""

import ctypes
import hashlib
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.engines.local.images import quickstart
from pliant.engines.local.images.quickstart import checkpoint, memory, network
from pliant.engines.local.images.quickstart.digits import TRAINING, Digits, uniform
from pliant.engines.local.images.quickstart.pace import CPU_SHARE, Pace
from pliant.engines.local.images.quickstart.settings import (
    BATCH,
    PARAMETERS,
    SLICES,
    SettingsError,
    read_settings,
    visible_gpus,
)
from pliant.engines.local.images.quickstart.worker import slices_of

FOLDER = Path(quickstart.__file__).parent


def test_the_digits_are_the_published_ones() -> None:
    raw = zlib.decompress((FOLDER / "digits.bin").read_bytes())
    assert hashlib.sha256(raw).hexdigest() in (FOLDER / "LICENSE-digits.txt").read_text()
    pixels, labels = np.frombuffer(raw[: 1797 * 64], np.uint8), np.frombuffer(raw[1797 * 64 :], np.uint8)
    assert pixels.max() == 16
    # the class distribution that UCI states for the test set
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_uniform_numbers_are_splitmix64_and_even() -> None:
    gamma, first_of_seed_0 = 0x9E3779B97F4A7C15, 0xE220A8397B1DCDAF  # SplitMix64's published first output
    z = gamma
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    assert z ^ (z >> 31) == first_of_seed_0
    draws = uniform((0, 0, 0), 100_000)
    assert abs(draws.mean() - 0.5) < 0.005
    assert np.histogram(draws, 10, (0, 1))[0].min() > 9_500
    assert not np.isclose(draws[:100], uniform((0, 0, 1), 100)).any()


def test_an_epoch_takes_every_training_record_once_and_no_held_out_one() -> None:
    digits = Digits(3)
    places = TRAINING * 2
    order = [digits._record(*divmod(place, TRAINING)) for place in range(places)]
    assert sorted(order[:TRAINING]) == sorted(order[TRAINING:]) == list(range(TRAINING))
    assert order[:TRAINING] != order[TRAINING:]


def test_a_batch_depends_on_seed_and_step_only() -> None:
    digits = Digits(0)
    for step in (40, 0, 23, 24):  # 23 holds the end of one epoch and the start of the next
        pixels, labels = digits.batch(step)
        again = Digits(0).batch(step)
        assert (pixels == again[0]).all()
        assert (labels == again[1]).all()
        assert not (pixels == Digits(1).batch(step)[0]).any()


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 16, 21])
def test_the_slices_of_a_step_are_each_done_once(workers: int) -> None:
    for step in range(workers):
        shares = [slices_of(step, rank, workers) for rank in range(1, workers + 1)]
        assert sorted(piece for share in shares for piece in share) == list(range(SLICES))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_the_gradient_is_that_of_the_loss() -> None:
    pixels, labels = Digits(0).batch(0)
    parameters = network.initial_parameters(0)
    gradient, unused = np.empty(PARAMETERS), np.empty(PARAMETERS)
    network.loss_and_gradient(parameters, pixels, labels, gradient)
    for place in (100, 1500, 2050, 2100, 2300, 2405):  # in both weights and both biases
        step = np.zeros(PARAMETERS)
        step[place] = 1e-6
        above, _ = network.loss_and_gradient(parameters + step, pixels, labels, unused)
        below, _ = network.loss_and_gradient(parameters - step, pixels, labels, unused)
        assert (above - below) / 2e-6 == pytest.approx(gradient[place], rel=1e-4, abs=1e-6)


def test_it_learns() -> None:
    digits, parameters = Digits(0), network.initial_parameters(0)
    velocity, gradient = np.zeros(PARAMETERS), np.empty(PARAMETERS)
    assert network.accuracy(parameters, *digits.held_out()) < 0.2
    for step in range(400):
        network.loss_and_gradient(parameters, *digits.batch(step), gradient)
        network.update(parameters, velocity, gradient, step)
    assert network.accuracy(parameters, *digits.held_out()) > 0.85


def test_pace_keeps_the_interval_and_does_not_catch_up() -> None:
    pace = Pace(0.1, now=50.0, parent_cpu=9.0, workers=2)  # processor time of the start does not count
    assert pace.due == 50.0
    pace.after(50.01, 50.0, 9.001, [0.001, 0.001])
    assert pace.due == pytest.approx(50.1)
    pace.after(53.0, 50.1, 9.002, [0.002, 0.002])  # three seconds asleep
    assert pace.due == 53.0
    pace.after(53.01, 53.0, 9.003, [0.003, 0.003])
    assert pace.due == pytest.approx(53.1)


@pytest.mark.parametrize(
    ("parent", "workers", "rest"),
    [(0.02, [0.02], 0.04), (0.0, [0.03, 0.0], 0.03), (0.05, [0.01, 0.01], 0.035)],
)
def test_pace_stretches_a_step_that_costs_too_much(parent: float, workers: list[float], rest: float) -> None:
    pace = Pace(0.1, now=0.0, parent_cpu=0.0, workers=len(workers))
    pace.after(0.05, 0.0, parent, workers)
    assert pace.due == pytest.approx(rest / CPU_SHARE)
    assert parent + sum(workers) <= 0.1 * len(workers) * pace.due


def test_a_default_run_takes_at_least_15_minutes_whatever_it_is_given() -> None:
    for gpus in ("", "0", "0,1,2,3,4,5,6,7"):
        for pace in ("", "0.001", "0.07", "60"):
            given = {"CUDA_VISIBLE_DEVICES": gpus, "QUICKSTART_STEP_SECONDS": pace}
            settings = read_settings(given)
            assert settings.steps * settings.step_seconds >= 15 * 60
    assert BATCH == 64


@pytest.mark.parametrize(
    ("value", "gpus"),
    [
        ("", ()),
        ("0", ("0",)),
        ("GPU-a, GPU-b", ("GPU-a", "GPU-b")),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("NoDevFiles", ()),
    ],
)
def test_visible_gpus(value: str, gpus: tuple[str, ...]) -> None:
    assert visible_gpus(value) == gpus


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUICKSTART_STEPS", "ten"),
        ("QUICKSTART_STEPS", "-1"),
        ("QUICKSTART_STEPS", "\u0663"),
        ("QUICKSTART_SEED", "1.5"),
        ("QUICKSTART_STEP_SECONDS", "0"),
        ("QUICKSTART_STEP_SECONDS", "nan"),
        ("QUICKSTART_PRINT_EVERY", "0"),
    ],
)
def test_wrong_settings(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}={value} is not "):
        read_settings({name: value})


def test_a_checkpoint_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((2, PARAMETERS))
    checkpoint.save(tmp_path, 7, checkpoint.Checkpoint(12, *rows))
    (tmp_path / f"{checkpoint.NAME}.tmp").mkdir()  # makes writes there fail
    with pytest.raises(IsADirectoryError):
        checkpoint.save(tmp_path, 7, checkpoint.Checkpoint(13, *rows))
    found = checkpoint.load(tmp_path, 7)
    assert found
    assert found.step == 12
    assert (np.array([found.parameters, found.velocity]) == rows).all()


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path / "missing", 0) is None


def test_what_a_worker_says_of_its_memory_is_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers of a task write to one log: a line written in two pieces could mix with another's."""
    pieces: list[str] = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=pieces.append, flush=lambda: None))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cuInit=lambda flags: 100))
    memory.take(1, 2)
    assert pieces == ["quickstart: worker 1/2 holds no GPU memory: cuInit says 100\n"]
