"""What the rest of a device is worth to the shares that are asked for: docs/reference/scheduling/packing.md

The fewest devices that hold a mix of shares are the answer of a linear program over patterns (what one device
may hold), found column by column, in exact fractions. Its prices say what part of a device each share is
worth; what is left of a device is worth the most that could still be put there.
"""

from fractions import Fraction
from functools import lru_cache
from math import lcm

UNITS = 50
"""Into so many equal parts a device is divided; shares are rounded up to them."""

PARTS = 64
"""Shares of one size count as so many 64ths of all, rounded down: the mix changes seldom."""

LEAST = 64
"""Of fewer shares in all nothing is concluded."""

MOST = 60
"""Patterns that are looked at: prices that are not exact are still good for comparing."""

Mix = tuple[tuple[int, int], ...]
"""(units of a device, 64ths of all shares that ask for so many), the largest first."""

Worth = tuple[int, ...]
"""By units that are left of a device: thousandths of a device; empty: nothing is known."""


def mix_of(counts: dict[int, int]) -> Mix:
    """`counts`: thousandths of a device -> how many ask for so many."""
    total = sum(counts.values())
    if total < LEAST:
        return ()
    by_units: dict[int, int] = {}
    for portion, count in counts.items():
        units = -(-portion * UNITS // 1000)
        by_units[units] = by_units.get(units, 0) + count
    parts = ((units, count * PARTS // total) for units, count in by_units.items())
    return tuple(sorted(((units, part) for units, part in parts if part), reverse=True))


@lru_cache(maxsize=64)  # a mix at a border goes to and fro
def worth(mix: Mix) -> Worth:
    """A function of the mix. It rises with what is left; 1000 is a whole device, give or take."""
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
        """Of each demand, as whole numbers, and what a device costs on the same scale."""
        rows = [row for row, cost in zip(self._inverse, self._costs, strict=True) if cost]
        found = [sum(column, Fraction(0)) for column in zip(*rows, strict=True)]
        whole = lcm(*(price.denominator for price in found))
        return [int(price * whole) for price in found], whole

    def enter(self, column: dict[int, int], cost: int) -> None:
        """Take in what serves so much of each demand, for what is used up first by it."""
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
    """By units of room the highest price of what fits, and which size is put there first; -1: none."""
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
