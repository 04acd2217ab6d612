"""Computes when the next step may start. It reads no clock: the caller passes the times."""

from collections.abc import Sequence

# At most a tenth of a core per worker is promised; the rest is a margin for clock ticks and late wake-ups.
CPU_SHARE = 0.08


class Pace:
    """Steps at a fixed interval in seconds, further apart where they cost more than CPU_SHARE per worker."""

    def __init__(self, interval: float, now: float, parent_cpu: float, workers: int) -> None:
        self.due = now  # when the next step may start; after being late it does not hurry to catch up
        self._interval = interval
        self._cpu = [parent_cpu, *[0.0] * workers]

    def after(self, now: float, started: float, parent_cpu: float, workers_cpu: Sequence[float]) -> None:
        """Account for the step that began at `started`; CPU times are totals in seconds."""
        cpu = [parent_cpu, *workers_cpu]
        spent = [total - before for total, before in zip(cpu, self._cpu, strict=True)]
        self._cpu = cpu
        rest = max(sum(spent) / len(workers_cpu), *spent[1:]) / CPU_SHARE
        self.due = max(self.due + self._interval, started + rest, now)
