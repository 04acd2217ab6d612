"""What may be set about scheduling. Durations in ms."""

from dataclasses import dataclass

ORDER = ("allocate", "shrink", "consolidate", "reclaim", "preempt", "stale", "allocate", "hasten", "grow")
"""The actions of a cycle, from the least to the most disruptive; bonus comes last."""


@dataclass(frozen=True, slots=True)
class Settings:
    consolidation_victims: int = 16  # most workloads one consolidation may move; 0: off; -1: no bound
    victims: str = "least"  # or "youngest": see docs/adr
    search_steps: int = 20_000  # bound on simulated placements per cycle for hypotheses
    stale_grace: int = 60_000  # how long a broken gang keeps its remains; -1: for ever
    grow_every: int = 5_000  # between two growths by bonus of a task that must restart for it
    grow_window: int = 600_000  # resizes within this double the wait ...
    grow_wait_max: int = 300_000  # ... up to this
    retry_base: int = 10_000  # back-off after the first failed attempt; doubles
    retry_max: int = 300_000
    actions: tuple[str, ...] = ORDER  # one that is named again runs again only if something was released
