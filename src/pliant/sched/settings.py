"""The settings of scheduling. Durations are in ms."""

from dataclasses import dataclass

ORDER = ("allocate", "shrink", "consolidate", "reclaim", "preempt", "stale", "allocate", "hasten", "grow")
"""The actions of a cycle, from the least to the most disruptive; bonus comes last."""


@dataclass(frozen=True, slots=True)
class Settings:
    consolidation_victims: int = 16  # most workloads one consolidation may move; 0: off; -1: no bound
    victims: str = "least"  # or "youngest": see docs/adr
    search_steps: int = 20_000  # bound on simulated placements per cycle for hypotheses
    refine: bool = True  # look for lighter victims once some were found; off for what-fits questions
    stale_grace: int = 60_000  # how long a broken gang keeps its remains; -1: for ever
    grow_every: int = 5_000  # least time between two bonus growths that restart a task
    grow_window: int = 600_000  # resizes within this double the wait ...
    grow_wait_max: int = 300_000  # ... up to this
    retry_base: int = 10_000  # back-off after the first failed attempt; doubles
    retry_max: int = 300_000
    overpromise: str = "mark"  # or "refuse": quotas that the machines cannot keep
    share_across_users: str = "no"  # or "project", "yes": whose jobs may share a GPU on a shared machine
    keep_deleted: int = 604_800_000  # how long files of deleted workloads can be brought back
    keep_finished: int = 0  # how long jobs that ended stay before they are deleted; 0: for ever
    keep_history: int = 2_592_000_000  # how long history, attempts and deleted workloads are remembered
    keep_audit: int = 7_776_000_000
    session_length: int = 2_592_000_000  # from a login by password until the next one is needed
    session_idle: int = 0  # an unused login ends this long after its last refresh; 0: with session_length
    request_rate: int = 200  # requests of one identity in a second; 0: no limit
    password_least: int = 8  # least characters of a new password
    past_use: int = 0  # thousandths: how strongly past use lowers the share over quota; 0: not at all
    past_use_window: int = 604_800_000  # how far back past use counts
    past_use_half_life: int = 86_400_000  # use this long ago counts half; 0: all in the window alike
    ageing: int = 0  # each wait of this length adds one step of priority in the project's order; 0: off
    ageing_max: int = 25  # most steps
    reservation: int = 0  # least milli-GPUs of a waiting gang that reserves what becomes free; 0: off
    churn_budget: int = -1  # most disruptive decisions against a project in churn_window; -1: no bound
    churn_window: int = 3_600_000
    actions: tuple[str, ...] = ORDER  # one that is named again runs again only if something was released
