"""Where nodes are: levels of the machine room, as node labels, and what work asks of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels by label key. Nodes of equal values on a level and all above it are one domain of it."""

    name: str
    levels: tuple[str, ...]  # label keys, the widest first


@dataclass(frozen=True, slots=True)
class Within:
    """How close together work should be placed. Levels are label keys of the topology; empty: none."""

    topology: str  # its name; empty: that of the node pool
    required: str = ""  # all of it is placed in one domain of this level, or waits
    preferred: str = ""  # in one domain of this level if possible, else of the next wider one
