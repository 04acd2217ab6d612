"""Values of environment variables on their way from a submission to the engine that seals them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.control.errors import BadRequest

MOST_BYTES = 128 * 1024
"""Most bytes of the variables of a launch, as `NAME=value` plus one byte each: the kernel takes no more."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment that a launch brings along. No row, answer, log or event ever contains its values."""

    given: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # asked for by name
    captured: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # the submitter's own environment
    whole: bool = False  # `captured` is all of it: nothing of the server's environment is added


Sealed = Mapping[str, Variables]
"""Variables by task group; under "" those of the workload's own launch."""


def check_variables(variables: Variables) -> None:
    """Raise BadRequest for a name that no environment can hold, and for more than MOST_BYTES."""
    size = 0
    for name, value in (*variables.captured, *variables.given):
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise BadRequest(f"{name!r} cannot be the name of an environment variable.", "Use NAME=value.")
        size += len(name.encode()) + len(value.encode()) + 2
    if size > MOST_BYTES:
        raise BadRequest(
            f"The environment is {size // 1024} KiB; at most {MOST_BYTES // 1024} KiB can be captured.",
            "Use --export NAME,... to capture the named variables only.",
        )
