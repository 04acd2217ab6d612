"""Measures how long the GPUs of each workload have been idle, by one look per minute."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pliant.model.sample import MINUTE, Sample

QUIET = 5_000
"""Thousandths of a percent of busy time up to which a GPU counts as idle: monitoring tools cause some."""

TOUCHED = 16 * 2**20 * 1000
"""Thousandths of a byte. If the memory in use changes by more, a program began or ended between two looks."""

GAP = 3 * MINUTE
"""Ms without a look after which a span starts over."""


@dataclass(frozen=True, slots=True)
class Span:
    """The present idle time of a workload."""

    since: int  # ms: the last look at which it was not known to be idle
    seen: int  # ms: the newest look
    memory: int  # in use at the newest look, in thousandths of a byte


class Spans:
    """The spans of all workloads. One look that sees work ends a span; no averages are used."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    def look(self, samples: Iterable[Sample], now: int) -> Mapping[str, int]:
        """Idle ms by workload id, 0 for one that works; without workloads whose GPUs cannot be measured."""
        found: dict[str, Span] = {}
        for sample in samples:
            kind, _, identity = sample.subject.partition(":")
            busy = [it.value for it in sample.numbers if it.name == "GPU_UTILIZATION_PER_GPU"]
            if kind != "workload" or not busy:
                continue
            memory = sum(it.value for it in sample.numbers if it.name == "GPU_MEMORY_USAGE_BYTES_PER_GPU")
            before = self._spans.get(identity)
            known = before is not None and now - before.seen <= GAP
            works = max(busy) > QUIET or (
                before is not None and known and abs(memory - before.memory) > TOUCHED
            )
            since = before.since if before is not None and known and not works else now
            found[identity] = Span(since, now, memory)
        self._spans = found
        return {identity: now - span.since for identity, span in found.items()}
