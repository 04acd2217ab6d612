"""How unrequested memory of a GPU is lent."""

import pytest

from pliant.devices.lending import lend

M = 2**20


@pytest.mark.parametrize(
    ("spare", "wants", "parts"),
    [
        (0, [8 * M], [0]),
        (-4 * M, [8 * M], [0]),
        (16 * M, [], []),
        (16 * M, [0, -2 * M], [0, 0]),
        (16 * M, [8 * M], [8 * M]),
        (16 * M, [100 * M], [16 * M]),
        (16 * M, [100 * M, 100 * M], [8 * M, 8 * M]),
        (16 * M, [4 * M, 100 * M, 0], [4 * M, 12 * M, 0]),
        (17 * M, [100 * M, 100 * M, 100 * M], [4 * M, 6 * M, 6 * M]),
    ],
)
def test_equal_parts_up_to_what_each_wants(spare: int, wants: list[int], parts: list[int]) -> None:
    assert lend(spare, wants) == parts
    assert sum(parts) <= max(0, spare)
