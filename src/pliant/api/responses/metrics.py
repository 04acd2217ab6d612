"""Metrics for Prometheus, read from the board at each request."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pliant.api.responses.fractions import Uses, shares_of
from pliant.control.board.view import Board
from pliant.control.state.accounting import sum_of
from pliant.model.quantity import GPU

CONTENT_TYPE = CONTENT_TYPE_LATEST

OTHER = "other"
MOST_PROJECTS = 200
"""Most projects, oldest first, that have lines of their own; the rest is summed up as OTHER."""

MOST_POOLS = 50
MOST_SHARES = 1000
"""Most pods with a GPU fraction that have lines of their own."""


class _Reading(Collector):
    def __init__(self, board: Board, version: str, uses: Uses) -> None:
        self._board, self._uses = board, uses
        self._version = version
        self._own = {view.queue.name for view in [*board.projects.values()][:MOST_PROJECTS]}
        self._pools = {pool.name for pool in board.pools[:MOST_POOLS]}

    def _label(self, project: str) -> str:
        return project if project in self._own else OTHER

    def collect(self) -> Iterable[Metric]:
        board = self._board
        info = GaugeMetricFamily("pliant_build_info", "Version of this server; always 1.", labels=["version"])
        info.add_metric([self._version], 1)
        yield info
        yield from self._projects()
        phases = Counter(
            (self._label(view.project.name), view.workload.phase.value) for view in board.workloads.values()
        )
        workloads = GaugeMetricFamily(
            "pliant_workloads", "Workloads that are not deleted.", labels=["project", "phase"]
        )
        for key, count in sorted(phases.items()):
            workloads.add_metric(list(key), count)
        yield workloads
        yield CounterMetricFamily(
            "pliant_cycles", "Scheduling cycles since the server started.", board.cycles
        )
        yield GaugeMetricFamily(
            "pliant_cycle_duration_seconds", "Time that the last cycle took to decide.", board.cycle_us / 1e6
        )
        yield GaugeMetricFamily("pliant_nodes", "Nodes known.", len(board.nodes))
        ready = sum(view.node.ready and not view.node.draining for view in board.nodes)
        yield GaugeMetricFamily("pliant_nodes_ready", "Nodes that take new work.", ready)
        devices = [gpu for view in board.nodes for gpu in view.gpus]
        yield GaugeMetricFamily("pliant_gpus", "GPUs known.", len(devices))
        held = sum(gpu.carried for gpu in devices)
        yield GaugeMetricFamily("pliant_allocated_gpus", "GPUs that tasks occupy.", held / GPU)
        yield GaugeMetricFamily(
            "pliant_contradictions", "Rows that contradict the rest and are set aside.", len(board.faults)
        )
        yield self._past_use()
        yield from self._shares()

    def _past_use(self) -> Metric:
        family = GaugeMetricFamily(
            "pliant_project_past_use_gpu_hours",
            "Past use of a project, weighted by age, as of the last cycle.",
            labels=["project", "pool"],
        )
        board = self._board
        sums: dict[tuple[str, ...], float] = {}
        for view in board.projects.values():
            for use in view.uses:
                used = sum_of(use.past, use.allocated.gpu, board.at, board.settings)
                pool = use.pool if use.pool in self._pools else OTHER
                _add(sums, (self._label(view.queue.name), pool), used / (GPU * 3_600_000))
        _tell(family, sums)
        return family

    def _shares(self) -> Iterable[Metric]:
        labels = ["project", "workload", "pod", "gpu"]
        used = GaugeMetricFamily("pliant_gpu_share_used_bytes", "Memory in use by a pod.", labels=labels)
        limit = GaugeMetricFamily("pliant_gpu_share_limit_bytes", "Limit.", labels=labels)
        uses: dict[tuple[str, ...], float] = {}
        limits: dict[tuple[str, ...], float] = {}
        for view in self._board.workloads.values():
            for share in shares_of(view, self._uses):
                where = (self._label(view.project.name), share["workload"], share["pod"], share["gpu"])
                if len(uses) >= MOST_SHARES:
                    where = (where[0], OTHER, OTHER, OTHER)
                _add(uses, where, share["usedBytes"])
                _add(limits, where, share["limitBytes"])
        _tell(used, uses)
        _tell(limit, limits)
        yield used
        yield limit

    def _projects(self) -> Iterable[Metric]:
        what = {
            "quota": "GPUs that a project may always have.",
            "allocated": "GPUs that a project has been given.",
            "fair_share": "Fair share of a project now: quota plus its part of the idle GPUs.",
            "over_quota": "GPUs that a project has above its quota.",
        }
        families = {
            name: GaugeMetricFamily(f"pliant_project_{name}_gpus", text, labels=["project"])
            for name, text in what.items()
        }
        sums: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in what}
        for view in self._board.projects.values():
            values = {
                "quota": sum(use.quota for use in view.uses),
                "allocated": sum(use.allocated.gpu for use in view.uses),
                "fair_share": sum(use.fair_share for use in view.uses),
                "over_quota": sum(max(0, use.allocated.gpu - use.quota) for use in view.uses),
            }
            for name in what:
                _add(sums[name], (self._label(view.queue.name),), values[name] / GPU)
        for name, family in families.items():
            _tell(family, sums[name])
            yield family


def _add(sums: dict[tuple[str, ...], float], where: tuple[str, ...], value: float) -> None:
    sums[where] = sums.get(where, 0) + value


def _tell(family: GaugeMetricFamily, sums: Mapping[tuple[str, ...], float]) -> None:
    for where, value in sums.items():
        family.add_metric(where, value)


def scrape(board: Board, version: str, uses: Uses) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reading(board, version, uses))
    return generate_latest(registry)
