"""What all reasons have in common, and how they say an amount."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pliant.model.quantity import format_bytes, format_gpus


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons. `code` is stable and machine-readable; `text` is one sentence for people."""

    code: ClassVar[str] = ""
    api_code: ClassVar[str] = ""  # the API's phaseReason, where it has one

    @property
    def text(self) -> str:
        raise NotImplementedError(type(self).__name__)

    @property
    def numbers(self) -> tuple[tuple[str, Any], ...]:
        """Field names and values, for JSON and history: true as 1, false as 0, nothing not at all."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return tuple(
            (name, int(value) if isinstance(value, bool) else value)
            for name, value in values
            if value is not None
        )


def amount(resource: str, value: int) -> str:
    """So much of gpu (thousandths), cpu (millicores) or memory (bytes), for people."""
    if resource == "gpu":
        return f"{format_gpus(value)} GPUs"
    if resource == "cpu":
        return f"{f'{value / 1000:.3f}'.rstrip('0').rstrip('.')} cores"
    return f"{format_bytes(value)} of memory"
