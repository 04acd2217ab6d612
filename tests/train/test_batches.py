"""The arithmetic of batches for all sizes, and the order of records."""

import itertools

import numpy as np
import pytest
import torch

from pliant.train.data.batches import micro_batches, owned, plan, positions, share, steps_per_epoch
from pliant.train.data.order import Order
from pliant.train.worker.steps import default_places, plan_step


def test_every_batch_every_world_every_cap() -> None:
    for batch in range(1, 513):
        for workers in range(1, 17):
            ranges = [share(batch, workers, rank) for rank in range(workers)]
            assert ranges[0][0] == 0 and ranges[-1][1] == batch
            assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
            counts = {stop - start for start, stop in ranges}
            assert max(counts) - min(counts) <= 1 and max(counts) == -(-batch // workers)


def test_no_micro_batch_is_over_its_cap() -> None:
    for count in range(1, 513):  # all counts that a worker can have of a batch of up to 512
        for cap in range(1, 65):
            sizes = micro_batches(count, cap)
            assert sum(sizes) == count
            assert max(sizes) <= cap and max(sizes) - min(sizes) <= 1
            assert len(sizes) == -(-count // cap)


@pytest.mark.parametrize(
    ("batch", "cap", "workers", "expected"),
    [
        pytest.param(256, 64, 1, (4, 64), id="one GPU"),
        pytest.param(256, 64, 2, (2, 64), id="two"),
        pytest.param(256, 64, 4, (1, 64), id="four"),
        pytest.param(100, 30, 1, (4, 25), id="what floor division made 3 x 33 of, over the cap"),
    ],
)
def test_plan(batch: int, cap: int, workers: int, expected: tuple[int, int]) -> None:
    assert plan(batch, cap, workers) == expected


def test_a_worker_has_the_same_records_whatever_its_micro_batches() -> None:
    settings = {
        "records": 103,
        "epoch_records": 103,
        "global_batch": 16,
        "seed": 3,
        "shuffle": True,
        "logical_workers": 0,
    }
    for step in range(steps_per_epoch(103, 16) * 2):
        epoch, start, stop = positions(step, 103, 16)
        whole = Order(103, 3, epoch).indices(start, stop).tolist()
        for size in range(1, 17):
            for cap in (1, 3, 16):
                plans = [
                    plan_step({**settings, "max_micro_batch": cap}, default_places(settings), step, r, size)
                    for r in range(size)
                ]
                assert [i for p in plans for i in p.ids] == whole
                assert [i for p in plans for part in p.parts if not part.ghost for i in part.ids] == whole


def test_logical_workers_have_the_same_parts_wherever_they_run() -> None:
    settings = {"records": 103, "epoch_records": 103, "global_batch": 16, "seed": 3, "shuffle": True}
    settings |= {"logical_workers": 5, "max_micro_batch": 2}
    for step in (0, 6):  # a whole batch and the short one at the end
        alone = plan_step(settings, default_places(settings), step, 0, 1).parts
        for size in range(1, 8):
            plans = [plan_step(settings, default_places(settings), step, r, size) for r in range(size)]
            assert tuple(part for p in plans for part in p.parts) == alone
    assert [list(owned(5, 2, r)) for r in range(2)] == [[0, 1, 2], [3, 4]]


def gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("weigh", ["records", "ranks"])
def test_the_gradient_is_that_of_the_whole_batch(weigh: str) -> None:
    """The sum of losses / B over ranks and micro-batches is the batch's mean; the average of ranks is not."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)).double()
    x, y = torch.randn(512, 4, dtype=torch.float64), torch.randn(512, 1, dtype=torch.float64)
    worst = 0.0
    for batch in (1, 2, 7, 31, 100, 256, 509):
        model.zero_grad()
        torch.nn.functional.mse_loss(model(x[:batch]), y[:batch]).backward()
        whole = gradient(model)
        for workers in range(1, 17):
            for cap in (1, 30, 64):
                if batch > 64 and cap == 1:
                    continue
                model.zero_grad()
                for rank in range(workers):
                    at, stop = share(batch, workers, rank)
                    sizes = micro_batches(stop - at, cap)
                    for n in sizes:
                        loss = torch.nn.functional.mse_loss(model(x[at : at + n]), y[at : at + n])
                        share_of = n / batch if weigh == "records" else 1 / (workers * len(sizes))
                        (loss * share_of).backward()
                        at += n
                worst = max(worst, float((gradient(model) - whole).abs().max()))
    assert worst < 1e-10 if weigh == "records" else worst > 1e-3


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_gradient_for_all_batches_workers_and_caps() -> None:
    """Exhaustive, with known gradients per record: those of a linear model in float64."""
    dice = np.random.default_rng(0)
    per_record = dice.normal(size=(512, 3))
    sums = np.concatenate([np.zeros((1, 3)), per_record.cumsum(0)])
    for batch in range(1, 513):
        whole = sums[batch] / batch
        for workers in range(1, 17):
            ranges = [share(batch, workers, rank) for rank in range(workers)]
            for cap in range(1, 65):
                edges = [0]
                for start, stop in ranges:
                    for n in micro_batches(stop - start, cap):
                        edges.append(edges[-1] + n)
                    assert edges[-1] == stop
                n = np.diff(edges)[:, None]
                means = (sums[edges[1:]] - sums[edges[:-1]]) / n
                assert abs((means * (n / batch)).sum(0) - whole).max() < 1e-10


def test_an_order_is_a_permutation_that_never_changes() -> None:
    for records in [*range(1, 130), 1000, 4096, 60_000]:
        assert sorted(Order(records, 5, 2).indices(0, records).tolist()) == list(range(records))
    assert Order(10, 0, 0).indices(0, 10).tolist() == [6, 8, 7, 0, 2, 4, 1, 3, 5, 9]  # must never change
    assert (
        Order(1000, 1, 0).indices(300, 310).tolist() == Order(1000, 1, 0).indices(0, 1000)[300:310].tolist()
    )
    assert Order(10, 0, 0, shuffle=False).indices(2, 5).tolist() == [2, 3, 4]
    with pytest.raises(IndexError):
        Order(10, 0, 0).indices(5, 11)


def test_epochs_and_seeds_differ_and_nothing_is_left_where_it_was() -> None:
    orders = [Order(5000, seed, epoch).indices(0, 5000) for seed in (0, 1) for epoch in (0, 1)]
    for i, one in enumerate(orders):
        for other in orders[i + 1 :]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
        assert abs(np.corrcoef(one, np.arange(5000))[0, 1]) < 0.05
        assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.05
