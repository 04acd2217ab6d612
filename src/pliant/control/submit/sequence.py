"""When a submission may begin: its begin time, the jobs it depends on, and the elements of an array."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pliant.control.errors import BadRequest, NotFound
from pliant.control.state.holds import ending_of, hold
from pliant.model.hold import Dependency, Element, When
from pliant.model.workload import Desired, Phase, Workload

MOST_ELEMENTS = 1000
MOST_INDEX = 999_999
CORRESPONDING = "aftercorr"
"""Slurm's term: the element of another array with the same index must succeed."""

SINGLETON = "singleton"
"""Slurm's term: all earlier jobs of this submitter with this name prefix must have ended."""

LATE = 60_000
"""Ms by which a begin time may be in the past when it arrives: clocks differ, and clients repeat requests."""

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class DependencyAsk:
    on: str  # name or number of a job, or name of an array
    when: str  # When, CORRESPONDING, or SINGLETON of the jobs with that prefix


@dataclass(frozen=True, slots=True)
class Start:
    """When a submission may begin."""

    begin: int | None = None  # ms
    dependencies: tuple[DependencyAsk, ...] = ()
    any_of_them: bool = False
    indexes: tuple[int, ...] = ()  # of the elements of an array; none: it is one job
    at_once: int = 0  # elements; 0: all
    keep_pending: bool = False  # although a dependency failed


def indexes_of(text: str) -> tuple[int, ...]:
    """'0-15', '0,6,16-32', '0-15:4' as indexes in order. Raises BadRequest."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise BadRequest(f"Invalid array {text!r}.", "Use indexes such as 0-15, 0,6,16-32 or 0-15:4.")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step:
            raise BadRequest(f"Array {text!r} has an empty range {part}.", "Write the smaller index first.")
        if last > MOST_INDEX:
            raise BadRequest(f"Array index {last} is too large.", f"Use indexes from 0 to {MOST_INDEX}.")
        found.update(range(first, last + 1, step))
        if len(found) > MOST_ELEMENTS:
            count = sum(1 for _ in range(first, last + 1, step))
            raise BadRequest(
                f"Array {text!r} has too many elements ({max(count, len(found))}).",
                f"Submit at most {MOST_ELEMENTS} at a time.",
            )
    return tuple(sorted(found))


def elements_of(job: Workload, start: Start, identities: Iterable[str], array: str) -> list[Workload]:
    """The elements of an array, each like `job`; `array` is its id. Only the job if it is no array."""
    if not start.indexes:
        return [job]
    count, least, most = len(start.indexes), start.indexes[0], start.indexes[-1]
    return [
        replace(
            job,
            id=identity,
            name=f"{job.name}-{index}",
            element=Element(array, job.name, index, count, least, most, start.at_once),
        )
        for identity, index in zip(identities, start.indexes, strict=True)
    ]


def held(job: Workload, start: Start, present: Mapping[str, Workload], now: int) -> Workload:
    """The job with what it waits for; `present`: the workloads of all projects. Raises Refused."""
    if start.begin is not None and start.begin < now - LATE:
        raise BadRequest("The begin time is in the past.", "Use --begin HH:MM, now+2h, or a later date.")
    own = [
        row
        for row in (present.values() if start.dependencies else ())
        if row.project == job.project and row.desired is not Desired.DELETED
    ]
    after = tuple(one for ask in start.dependencies for one in _resolved(job, ask, own))
    lost = [one for one in after if not one.met and _over(present[one.workload])]
    hopeless = lost and (not start.any_of_them or len(lost) == len(after))
    if hopeless and not start.keep_pending:
        name, how = lost[0].name, ending_of(present[lost[0].workload])
        raise BadRequest(
            f"Job {name} {how}, so the dependency {lost[0].when}:{name} can never be met.",
            f"Use --dependency afterany:{name} to start whatever its end, or --keep-pending to wait "
            f"until {name} is submitted again and succeeds.",
        )
    made = replace(
        job, begin=start.begin, after=after, after_any=start.any_of_them, keep_pending=start.keep_pending
    )
    return replace(made, held=hold(made, now))


def _resolved(job: Workload, ask: DependencyAsk, own: list[Workload]) -> list[Dependency]:
    """One dependency for a job, one for each element of an array; for aftercorr that of the same index."""
    if ask.when == SINGLETON:
        named = re.compile(re.escape(ask.on) + "-[0-9a-f]+")  # names made from a prefix
        mine = (row for row in own if row.user == job.user and named.fullmatch(row.name))
        return [_dependency(row, When.ANY) for row in mine if not _over(row)]
    found = [row for row in own if row.name == ask.on or str(row.serial) == ask.on]
    if not found:
        found = [row for row in own if row.element is not None and row.element.name == ask.on]
    if not found:
        names = {job.name, job.element.name if job.element is not None else ""}
        if ask.on in names:
            raise BadRequest("A job cannot depend on itself.", "Name another job.")
        raise NotFound(
            f"Dependency {ask.on} does not exist in this project.",
            "Use the name or number of a job that was submitted before.",
        )
    when = ask.when
    if when == CORRESPONDING:
        found = [row for row in found if _corresponds(row, job)]
        when = When.OK
        if not found:
            raise BadRequest(
                f"Array {ask.on} has no element that corresponds to {job.name}.",
                "Use aftercorr between arrays with the same indexes, or afterok.",
            )
    return [_dependency(row, When(when)) for row in sorted(found, key=lambda row: row.serial)]


def _corresponds(row: Workload, job: Workload) -> bool:
    return row.element is not None and job.element is not None and row.element.index == job.element.index


def _dependency(row: Workload, when: When) -> Dependency:
    """A dependency, met if the job's end meets it; the next cycle checks whether the job has started."""
    succeeded = row.phase is Phase.COMPLETED
    met = row.phase.final and {When.OK: succeeded, When.NOT_OK: not succeeded}.get(when, True)
    return Dependency(row.id, row.name, when, met)


def _over(row: Workload) -> bool:
    return row.phase.final
