"""What the rest of a device is worth to the shares that are asked for: docs/reference/scheduling/packing.md

A linear program over patterns (what one device may hold), solved column by column in exact fractions, gives
the fewest devices that hold a mix of shares. Its prices are the part of a device that each share is worth.
The rest of a device is worth the most that could still be put there.
"""

from fractions import Fraction
from functools import lru_cache
from math import lcm

UNITS = 50
"""Equal parts of a device; shares are rounded up to them."""

PARTS = 64
"""The number of shares of each size is rounded down to 64ths of all, so that the mix seldom changes."""

LEAST = 64
"""With fewer shares in total, the mix counts as unknown."""

MOST = 60
"""Most patterns that are tried: prices that are not exact are still good for comparing."""

Mix = tuple[tuple[int, int], ...]
"""(units of a device, 64ths of all shares that ask for so many), the largest first."""

Worth = tuple[int, ...]
"""Units that are left of a device -> their worth in thousandths of a device; empty: unknown."""


def mix_of(counts: dict[int, int]) -> Mix:
    """The mix of shares. `counts`: thousandths of a device -> how many shares ask for so many."""
    total = sum(counts.values())
    if total < LEAST:
        return ()
    by_units: dict[int, int] = {}
    for portion, count in counts.items():
        units = -(-portion * UNITS // 1000)
        by_units[units] = by_units.get(units, 0) + count
    parts = ((units, count * PARTS // total) for units, count in by_units.items())
    return tuple(sorted(((units, part) for units, part in parts if part), reverse=True))


@lru_cache(maxsize=64)  # a mix near a rounding border alternates
def worth(mix: Mix) -> Worth:
    """The worth of what is left of a device. It rises with what is left; a whole device is about 1000."""
    if not mix:
        return ()
    sizes = [units for units, _ in mix]
    program = _Program([UNITS // units for units in sizes], [part for _, part in mix])
    for _ in range(MOST):
        prices, whole = program.prices()
        values, chosen = _fullest(sizes, prices)
        slack = min(range(len(prices)), key=prices.__getitem__)
        if prices[slack] < 0:
            program.enter({slack: -1}, 0)
        elif values[UNITS] > whole:
            program.enter(_pattern(sizes, chosen), 1)
        else:
            break
    return tuple(value * 1000 // whole for value in values)


class _Program:
    """Cover all demands by patterns, each of which costs one device: the revised simplex method."""

    def __init__(self, each: list[int], demands: list[int]) -> None:
        rows = range(len(each))
        self._inverse = [[Fraction(r == c, each[r]) for c in rows] for r in rows]
        self._amounts = [Fraction(demand, count) for demand, count in zip(demands, each, strict=True)]
        self._costs = [1] * len(each)

    def prices(self) -> tuple[list[int], int]:
        """(the price of each demand as an integer, what a device costs on the same scale)."""
        rows = [row for row, cost in zip(self._inverse, self._costs, strict=True) if cost]
        found = [sum(column, Fraction(0)) for column in zip(*rows, strict=True)]
        whole = lcm(*(price.denominator for price in found))
        return [int(price * whole) for price in found], whole

    def enter(self, column: dict[int, int], cost: int) -> None:
        """Bring a column (how much it serves of each demand) into the basis; the first one used up leaves."""
        steps = [sum(row[c] * count for c, count in column.items()) for row in self._inverse]
        _, out = min((self._amounts[r] / step, r) for r, step in enumerate(steps) if step > 0)
        self._costs[out] = cost
        pivot = [value / steps[out] for value in self._inverse[out]]
        amount = self._amounts[out] / steps[out]
        for r, step in enumerate(steps):
            if r != out and step:
                row = self._inverse[r]
                self._inverse[r] = [
                    value - step * by if by else value for value, by in zip(row, pivot, strict=True)
                ]
                self._amounts[r] -= step * amount
        self._inverse[out], self._amounts[out] = pivot, amount


def _fullest(sizes: list[int], prices: list[int]) -> tuple[list[int], list[int]]:
    """By units of room: the highest price of what fits, and the size that is put there first; -1: none."""
    values, chosen = [0], [-1]
    for room in range(1, UNITS + 1):
        best, first = values[-1], -1
        for at, size in enumerate(sizes):
            if size <= room and values[room - size] + prices[at] > best:
                best, first = values[room - size] + prices[at], at
        values.append(best)
        chosen.append(first)
    return values, chosen


def _pattern(sizes: list[int], chosen: list[int]) -> dict[int, int]:
    """How many of each size one device holds."""
    room, found = UNITS, dict[int, int]()
    while room:
        at = chosen[room]
        if at >= 0:
            found[at] = found.get(at, 0) + 1
        room -= sizes[at] if at >= 0 else 1
    return found
