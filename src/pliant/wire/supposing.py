"""The changes that can be supposed with POST /api/v1/what-if, one type for each kind."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Length, Looks, Name, Range, Word

_Number = Annotated[float, Looks(least=0, most=10**9)]


class _OfOne(TypedDict, total=False):
    workload: Required[Name]  # id or name
    project: Word  # its project, if several have that name


class SupposedEnd(_OfOne, total=False):
    kind: Required[Literal["end"]]


class SupposedPriority(_OfOne, total=False):
    kind: Required[Literal["priority"]]
    to: Required[_Number]


class SupposedJob(TypedDict, total=False):
    kind: Required[Literal["submit"]]
    project: Required[Name]
    name: Word
    gpus: Annotated[float, Looks(least=0, most=10**9, step=1, other=Looks(least=0.001, most=1, step=0.001))]
    tasks: Annotated[float, Looks(least=0, most=10_000)]  # each with `gpus` GPUs
    priority: _Number
    preemptible: bool
    elastic: bool
    pool: Word
    nodeType: Word


class SupposedNodes(TypedDict, total=False):
    kind: Required[Literal["add-nodes"]]
    count: Annotated[float, Looks(least=1, most=1000)]
    gpus: Annotated[float, Looks(least=0, most=64)]  # of each
    pool: Word
    labels: Annotated[dict[str, Word], Length(100)]


class _OfNodes(TypedDict, total=False):
    """The node of that name, or all nodes with a label, such as that of a rack."""

    node: Word
    label: Word
    value: Word


class SupposedDrain(_OfNodes, total=False):
    kind: Required[Literal["drain"]]
    stop: bool


class SupposedLoss(_OfNodes, total=False):
    kind: Required[Literal["remove", "fail"]]


class SupposedQuota(TypedDict, total=False):
    kind: Required[Literal["quota", "limit", "weight"]]
    project: Word
    department: Word
    pool: Word
    to: Required[Annotated[float, Range(0, 10**9)]]


AnySupposed = (
    SupposedEnd
    | SupposedPriority
    | SupposedJob
    | SupposedNodes
    | SupposedDrain
    | SupposedLoss
    | SupposedQuota
)
