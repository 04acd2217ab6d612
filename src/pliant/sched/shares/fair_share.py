"""Fair share: quota first, then the idle rest by rank and weight, in whole units by largest remainder."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pliant.model.quantity import GPU, Resources

INFINITE = 1 << 62
"""The number for `unlimited` in sums and comparisons."""

ALL = 1 << 20
"""The unit of past use: a queue that used a whole pool over the window has ALL."""


def bound(value: int) -> int:
    """A quota or limit as a number for comparisons: INFINITE for a negative one, which means unlimited."""
    return INFINITE if value < 0 else value


class Claimant(NamedTuple):
    """One of several siblings that share an amount of one resource."""

    key: str
    deserved: int  # INFINITE allowed
    wants: int  # min(limit, allocated + pending)
    weight: int | None  # None: its quota is its weight
    rank: int = 100
    created: int = 0
    past: int = 0  # the part of the pool that it used recently, in parts of ALL


def divide(
    total: int, claimants: Iterable[Claimant], unit: int, past_use: int = 0, lend: bool = False
) -> dict[str, int]:
    """How much of `total` each claimant may have: at most what it wants. Quotas may add up to more.

    The rest goes by rank, then by weight in whole units (the last one may be smaller). Weight 0 gets none
    of it. Claimants with neither weight nor quota share evenly what the others of their rank leave; with
    `lend`, those of weight 0, too. `past_use` (thousandths): the effect of past use, see _corrected().
    """
    order = sorted(claimants, key=lambda c: (c.created, c.key))
    given = {c.key: min(total if c.deserved >= INFINITE else c.deserved, c.wants) for c in order}
    rest = total - sum(given.values())
    for rank in sorted({c.rank for c in order}, reverse=True):
        level = [(c, _weight(c, total)) for c in order if c.rank == rank]
        last = [(c, 1) for c, weight in level if not weight and (lend or c.weight is None)]
        for some in ([entry for entry in level if entry[1]], last):
            if rest > 0:
                hungry = [entry for entry in some if entry[0].wants > given[entry[0].key]]
                rest = _pour(rest, hungry, given, unit, past_use)
    return given


def _weight(claimant: Claimant, total: int) -> int:
    if claimant.weight is not None:
        return max(0, claimant.weight)
    return min(claimant.deserved, total)


def _corrected(level: list[tuple[Claimant, int]], past_use: int) -> list[tuple[Claimant, int]]:
    """Weights corrected by past use: a claimant that used more than its part recently gets less, at least 0.

    With w its part of all weights and u the part of the pool that it used recently: w + past_use * (w - u).
    """
    if not past_use:
        return level
    weights = sum(weight for _, weight in level)
    found = [
        (c, max(0, weight * (1000 + past_use) * ALL - past_use * c.past * weights)) for c, weight in level
    ]
    return found if any(weight for _, weight in found) else level


def _pour(
    rest: int, level: list[tuple[Claimant, int]], given: dict[str, int], unit: int, past_use: int
) -> int:
    """Give `rest` to the claimants of one rank by weight; return what they leave."""
    open_ = level
    while open_:
        parts = _corrected(open_, past_use)
        weights = sum(weight for _, weight in parts)
        full = {c.key for c, w in parts if (c.wants - given[c.key]) * weights <= rest * w}
        if not full:
            break
        for claimant, _ in open_:
            if claimant.key in full:
                rest -= claimant.wants - given[claimant.key]
                given[claimant.key] = claimant.wants
        open_ = [entry for entry in open_ if entry[0].key not in full]
    if not open_:
        return rest
    parts = _corrected(open_, past_use)
    weights = sum(weight for _, weight in parts)
    amount = rest
    remainders: list[tuple[int, int, Claimant]] = []
    for place, (claimant, weight) in enumerate(parts):
        part = amount * weight // (weights * unit) * unit
        given[claimant.key] += part
        rest -= part
        remainders.append((part * weights - amount * weight, place, claimant))
    remainders.sort(key=lambda entry: entry[:2])
    before = -1
    while rest > 0 and rest != before:
        before = rest
        for _, _, claimant in remainders:
            part = min(unit, rest, claimant.wants - given[claimant.key])
            given[claimant.key] += part
            rest -= part
    return rest


class Standing(NamedTuple):
    """What one queue is entitled to in one pool; INFINITE for unlimited."""

    deserved: Resources
    limit: Resources
    fair: Resources
    rank: int
    created: int
    allocatable: Resources  # what it can reach: see reachable()
    past: int = 0  # the part of the pool that it used recently, in parts of ALL


def _reachable(quota: int, most: int, share: int) -> int:
    return most if quota >= INFINITE else min(most, max(quota, share))


def reachable(deserved: Resources, limit: Resources, fair: Resources) -> Resources:
    """The limit where the quota is unlimited, else min(limit, max(quota, fair share))."""
    return Resources(
        _reachable(deserved[0], limit[0], fair[0]),
        _reachable(deserved[1], limit[1], fair[1]),
        _reachable(deserved[2], limit[2], fair[2]),
    )


UNITS = Resources(GPU, 1, 1)


class Member(NamedTuple):
    """A queue as share_out() needs it."""

    key: str
    deserved: Resources
    limit: Resources
    weight: int | None
    rank: int
    created: int
    wants: Resources  # claimed + pending, before limits
    children: tuple["Member", ...] = ()
    past: int = 0  # the part of the pool that it used recently, in parts of ALL


def share_out(
    total: Resources, members: Iterable[Member], past_use: int = 0, lend: bool = False
) -> Mapping[str, Standing]:
    """Fair shares of a whole queue tree of one pool, by key; past use counts for GPUs alone. See divide()."""
    found: dict[str, Standing] = {}
    _share_level(total, tuple(members), found, past_use, lend)
    return found


def _share_level(
    total: Resources, members: tuple[Member, ...], found: dict[str, Standing], past_use: int, lend: bool
) -> None:
    columns = []
    for at, unit in enumerate(UNITS):
        whole, wants = total[at], [min(m.limit[at], m.wants[at]) for m in members]
        if all(want <= whole and want <= m.deserved[at] for want, m in zip(wants, members, strict=True)):
            columns.append(wants)  # each quota suffices: nothing has to be divided
            continue
        claimants = [
            Claimant(m.key, m.deserved[at], want, m.weight if at == 0 else GPU, m.rank, m.created, m.past)
            for m, want in zip(members, wants, strict=True)
        ]
        given = divide(whole, claimants, unit, past_use if at == 0 else 0, lend)
        columns.append([given[m.key] for m in members])
    for m, gpu, cpu, memory in zip(members, *columns, strict=True):
        fair = Resources(gpu, cpu, memory)
        found[m.key] = Standing(
            m.deserved, m.limit, fair, m.rank, m.created, reachable(m.deserved, m.limit, fair), m.past
        )
        if m.children:
            _share_level(fair, m.children, found, past_use, lend)
