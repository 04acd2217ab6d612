"""Renders samples as means over equal parts of a period."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pliant.api.responses.sheet import lines
from pliant.api.responses.times import stamp
from pliant.model.sample import Sample
from pliant.wire.measurements import Histogram, MeasuredGroup, MeasuredValue, Measurement, Measurements

DISTRIBUTION = "GPU_UTILIZATION_DISTRIBUTION"
PER_GPU = "_PER_GPU"


@dataclass(frozen=True, slots=True)
class Span:
    """A period in equal parts."""

    start: int  # ms
    end: int  # ms, after start
    parts: int  # 0: no values

    def means(self, samples: Iterable[Sample], name: str) -> dict[str, dict[int, int]]:
        """Means in thousandths, by part of the subject, then by the end (ms) of the part of the period."""
        found: dict[str, dict[int, list[int]]] = {}
        for sample in samples if self.parts else ():
            until = self._until(sample.at)
            for number in sample.numbers:
                if number.name == name:
                    found.setdefault(number.part, {}).setdefault(until, []).append(number.value)
        return {
            part: {until: sum(values) // len(values) for until, values in sorted(ends.items())}
            for part, ends in sorted(found.items())
        }

    def _until(self, at: int) -> int:
        """The end of the part of the period that contains a sample; a sample at that end is inside."""
        length = self.end - self.start
        number = -(-(at - self.start) * self.parts // length)  # 1..parts
        return self.start + length * max(1, min(self.parts, number)) // self.parts


def shown(value: int) -> str:
    """1500 -> '1.5'."""
    return f"{value / 1000:.15g}"


def of_subject(
    samples: Sequence[Sample],
    names: Sequence[str],
    span: Span,
    part: str = "",
    groups: Sequence[MeasuredGroup] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Measurements:
    """The answer about one subject, or about one `part` of it such as a pod or a pool."""
    told: Measurements = {"measurements": [], "histogram": [], "missing": []}
    for name in names:
        means = span.means(samples, (renamed or {}).get(name, name))
        if name == DISTRIBUTION:
            known = bool(means)
            told["histogram"] += [_histogram(name, means)] if known else []
        elif name.endswith(PER_GPU):
            chosen = {key.removeprefix(f"{part} ") if part else key: it for key, it in means.items()}
            wanted = {key: it for key, it in chosen.items() if key and " " not in key and key != part}
            told["measurements"] += [_measurement(name, it, {"gpu": key}) for key, it in wanted.items()]
            known = bool(wanted)
        else:
            mine = means.get(part, {})
            told["measurements"].append(_measurement(name, mine, {}))
            known = bool(mine)
        if not known:
            told["missing"].append(name)
    if groups is not None:
        for each in told["measurements"]:
            each["groups"] = list(groups)
    return told


def _measurement(name: str, means: Mapping[int, int], labels: Mapping[str, str]) -> Measurement:
    values: list[MeasuredValue] = [
        {"value": shown(value), "timestamp": stamp(until)} for until, value in means.items()
    ]
    return {"type": name, "labels": dict(labels), "values": values}


def _histogram(name: str, means: Mapping[str, Mapping[int, int]]) -> Histogram:
    ends = sorted({until for it in means.values() for until in it})
    return {
        "type": name,
        "values": [
            {
                "timestamp": stamp(until),
                "data": {part: shown(it[until]) for part, it in means.items() if until in it},
            }
            for until in ends
        ],
    }


def as_csv(told: Measurements) -> str:
    """One line for each value."""
    rows = [["type", "labels", "timestamp", "value"]]
    for each in told["measurements"]:
        labels = [f"{key}={value}" for key, value in each["labels"].items()]
        labels += [f"{it['key']}={it['name']}" for it in each.get("groups", ())]
        for it in each["values"]:
            rows.append([each["type"], " ".join(labels), it["timestamp"], it["value"]])
    for histogram in told["histogram"]:
        for at in histogram["values"]:
            for part, value in at["data"].items():
                rows.append([histogram["type"], f"range={part}", at["timestamp"], value])
    return lines(rows)
