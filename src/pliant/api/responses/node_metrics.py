"""Metrics of one node for Prometheus: one line for each GPU fraction and each GPU."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pliant.control.fractions import PartUse
from pliant.control.ports import GpuLoad

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Row(NamedTuple):
    """A pod with GPU fractions."""

    project: str
    workload: str
    pod: str
    parts: tuple[PartUse, ...]
    refused: int


class _Node(Collector):
    def __init__(
        self,
        node: str,
        rows: Iterable[Row],
        loads: Mapping[str, GpuLoad],
        outside: Mapping[str, int],
        events: Mapping[str, int],
    ) -> None:
        self._node, self._rows, self._loads, self._outside = node, list(rows), loads, outside
        self._events = events

    def collect(self) -> Iterable[Metric]:
        labels = ["node", "project", "workload", "pod", "gpu"]
        texts = {
            "used_bytes": "Memory in use by a pod.",
            "limit_bytes": "Limit.",
            "request_bytes": "What a pod always has; what is between it and the limit is lent.",
            "processes": "Processes of a pod that use the GPU.",
            "over_limit": "1 while a pod uses more than its limit.",
        }
        found = {
            name: GaugeMetricFamily(f"pliant_gpu_share_{name}", text, labels=labels)
            for name, text in texts.items()
        }
        refused = GaugeMetricFamily(
            "pliant_gpu_share_refused_allocations",
            "Allocations beyond the limit of programs that live.",
            labels=labels[:-1],
        )
        for row in self._rows:
            refused.add_metric([self._node, *row[:3]], row.refused)
            for part in row.parts:
                where = [self._node, *row[:3], part.gpu]
                found["used_bytes"].add_metric(where, part.used)
                found["limit_bytes"].add_metric(where, part.limit)
                found["request_bytes"].add_metric(where, part.request)
                found["processes"].add_metric(where, part.processes)
                found["over_limit"].add_metric(where, int(part.used > part.limit))
        yield from found.values()
        yield refused
        yield from self._devices()

    def _devices(self) -> Iterable[Metric]:
        labels = ["node", "gpu"]
        busy = GaugeMetricFamily(
            "pliant_gpu_utilization_ratio", "Part of the time in which it computes.", labels=labels
        )
        used = GaugeMetricFamily(
            "pliant_gpu_memory_used_bytes", "Memory in use by all processes.", labels=labels
        )
        outside = GaugeMetricFamily(
            "pliant_gpu_outside_processes", "Processes that belong to no pod of Pliant.", labels=labels
        )
        for gpu, load in self._loads.items():
            busy.add_metric([self._node, gpu], load.busy / 100)
            used.add_metric([self._node, gpu], load.memory)
        for gpu, count in self._outside.items():
            outside.add_metric([self._node, gpu], count)
        yield from (busy, used, outside)
        tells = GaugeMetricFamily(
            "pliant_node_agent_nvml", "1 if the driver of this node tells of its GPUs.", labels=["node"]
        )
        tells.add_metric([self._node], int(bool(self._loads)))
        yield tells
        events = CounterMetricFamily("pliant_node_agent_events", "Events written.", labels=["node", "reason"])
        for reason, count in sorted(self._events.items()):
            events.add_metric([self._node, reason], count)
        yield events


def scrape_node(
    node: str,
    rows: Iterable[Row],
    loads: Mapping[str, GpuLoad],
    outside: Mapping[str, int],
    events: Mapping[str, int],
) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Node(node, rows, loads, outside, events))
    return generate_latest(registry)
