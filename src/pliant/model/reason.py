"""Why: the closed set of reasons, each with its numbers, made where the decision is made."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pliant.model.quantity import format_duration, format_gpus


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons. `code` is stable and machine-readable; `text` is one sentence for people."""

    code: ClassVar[str] = ""

    @property
    def text(self) -> str:
        raise NotImplementedError(type(self).__name__)

    @property
    def numbers(self) -> tuple[tuple[str, Any], ...]:
        """Field names and values, for JSON and history."""
        return tuple((field.name, getattr(self, field.name)) for field in fields(self))
