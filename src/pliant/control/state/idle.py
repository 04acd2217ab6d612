"""For how long the GPUs of each workload have done nothing, by one look at each minute."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pliant.model.sample import MINUTE, Sample

QUIET = 5_000
"""Thousandths of a percent of the time up to which a GPU does nothing: tools that look at it cost some."""

TOUCHED = 16 * 2**20 * 1000
"""Thousandths of a byte by which memory in use changes when a program begins or ends between two looks."""

GAP = 3 * MINUTE
"""Ms without a look after which nothing is known of what was before."""


@dataclass(frozen=True, slots=True)
class Span:
    """The present one of a workload that does nothing."""

    since: int  # ms: the last look at which it was not known to be idle
    seen: int  # ms: the newest look
    memory: int  # then in use, in thousandths of a byte


class Spans:
    """Of all workloads. One look that sees work ends a span: no average over its life hides or makes one."""

    def __init__(self) -> None:
        self._spans: dict[str, Span] = {}

    def look(self, samples: Iterable[Sample], now: int) -> Mapping[str, int]:
        """Ms by id for those that are idle; a workload whose GPUs nobody can measure is not."""
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
