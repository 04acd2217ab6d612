"""Measurements over time."""

from typing import NotRequired, TypedDict

from pliant.wire.shapes import Stamp


class MeasuredValue(TypedDict):
    value: str  # a number
    timestamp: Stamp  # end of the period of which it is the mean


class MeasuredGroup(TypedDict):
    key: str
    value: str
    name: str


class Measurement(TypedDict):
    """One metric, of one part of what was asked about."""

    type: str
    labels: dict[str, str]  # gpu: its uuid
    values: list[MeasuredValue]  # only where something was measured
    groups: NotRequired[list[MeasuredGroup]]


class HistogramValue(TypedDict):
    timestamp: Stamp
    data: dict[str, str]  # how many, by range


class Histogram(TypedDict):
    type: str
    values: list[HistogramValue]


class Measurements(TypedDict):
    """GET .../metrics. With status 207 if something that was asked for was not measured."""

    measurements: list[Measurement]
    histogram: list[Histogram]
    # ours
    missing: list[str]  # metrics without a value in that period
