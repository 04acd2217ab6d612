"""The scheduling settings that may be changed while the server runs: meaning and allowed values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum

from pliant.control.errors import BadRequest
from pliant.model.quantity import GPU, format_duration, parse_duration, parse_gpus, spell_gpus
from pliant.sched.settings import Settings


class Unit(StrEnum):
    COUNT = "count"
    TIME = "time"  # ms
    GPUS = "gpus"  # milli-GPUs
    FACTOR = "factor"  # thousandths
    WORD = "word"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: a field of Settings, its description for people, and its allowed values."""

    field: str
    name: str  # as people type it
    about: str
    unit: Unit
    least: int = 0
    most: int = 2**53
    special: str = ""  # what `least` means if it is no amount: "no bound", "off", "for ever"
    words: tuple[str, ...] = ()

    def show(self, value: int | str) -> str:
        """The value for people."""
        if isinstance(value, str):
            return value
        if self.special and value == self.least:
            return self.special
        match self.unit:
            case Unit.TIME:
                return format_duration(value) if value % 1000 == 0 else f"{value}ms"
            case Unit.GPUS:
                return spell_gpus(value)
            case Unit.FACTOR:
                return f"{value // GPU}.{value % GPU:03d}"
            case _:
                return str(value)

    def read(self, text: str) -> int | str:
        """What people typed, as the field's value: '5m', '0.5', 'off'. Raises BadRequest."""
        text = text.strip()
        if self.unit is Unit.WORD:
            return text
        if self.special and text in (
            "-1",
            "off",
            "none",
            "never",
            self.special.replace(" ", "-"),
            self.special,
        ):
            return self.least
        try:
            match self.unit:
                case Unit.TIME:
                    return parse_duration(text)
                case Unit.COUNT:
                    return int(text)
                case _:
                    return parse_gpus(text)  # thousandths of a GPU, or of 1
        except ValueError:
            raise BadRequest(
                f"{self.name} cannot be {text[:40]!r}.", f"Give {self._form()}.", field=self.name
            ) from None

    def _form(self) -> str:
        example = {Unit.TIME: "a time such as 90s or 5m", Unit.COUNT: "a whole number"}
        said = example.get(self.unit, "a number such as 1 or 0.5, with three decimals at most")
        return f"{said}, or {self.special.replace(' ', '-')!r}" if self.special else said

    def check(self, value: int | str) -> None:
        """Raise BadRequest if the value is not allowed."""
        if self.unit is Unit.WORD:
            if value not in self.words:
                raise BadRequest(
                    f"{self.name} cannot be {value!r}.", f"It is {' or '.join(self.words)}.", field=self.name
                )
        elif not isinstance(value, int) or not self.least <= value <= self.most:
            said = value if isinstance(value, str) else self.show(value)
            word = f"{self.special.replace(' ', '-')!r}, or " if self.special else ""
            least = "0" if word else self.show(self.least)
            raise BadRequest(
                f"{self.name} cannot be {said}.",
                f"It is {word}{least} or more, {self.show(self.most)} at most.",
                field=self.name,
            )


YEAR = 366 * 24 * 3600 * 1000

SETTINGS = (
    Setting(
        "consolidation_victims",
        "consolidation",
        "most workloads that are moved to place one",
        Unit.COUNT,
        least=-1,
        special="no bound",
    ),
    Setting("victims", "victims", "which victims are chosen first", Unit.WORD, words=("least", "youngest")),
    Setting(
        "stale_grace",
        "stale-grace",
        "grace period for the remaining tasks of a broken gang",
        Unit.TIME,
        least=-1,
        most=YEAR,
        special="for ever",
    ),
    Setting(
        "past_use",
        "past-use",
        "how much past use lowers the share over quota",
        Unit.FACTOR,
        most=1_000_000,
        special="off",
    ),
    Setting(
        "past_use_window",
        "past-use-window",
        "how far back past use counts",
        Unit.TIME,
        least=60_000,
        most=YEAR,
    ),
    Setting(
        "past_use_half_life",
        "past-use-half-life",
        "age after which past use counts half",
        Unit.TIME,
        most=YEAR,
        special="all alike",
    ),
    Setting(
        "ageing",
        "ageing",
        "pending time that counts as one step of priority within the project",
        Unit.TIME,
        most=YEAR,
        special="off",
    ),
    Setting("ageing_max", "ageing-max", "most steps of priority by waiting", Unit.COUNT, most=1000),
    Setting(
        "reservation",
        "reservation",
        "size from which a pending gang reserves GPUs that get free",
        Unit.GPUS,
        special="off",
    ),
    Setting(
        "churn_budget",
        "churn-budget",
        "most disruptive decisions against a project per churn-window",
        Unit.COUNT,
        least=-1,
        special="no bound",
    ),
    Setting("churn_window", "churn-window", "period of the churn budget", Unit.TIME, least=1000, most=YEAR),
    Setting(
        "grow_every", "grow-every", "least time between two growths that need a restart", Unit.TIME, most=YEAR
    ),
    Setting(
        "grow_window", "grow-window", "period in which each resize doubles that time", Unit.TIME, most=YEAR
    ),
    Setting(
        "grow_wait_max",
        "grow-wait-max",
        "longest time between two growths that need a restart",
        Unit.TIME,
        most=YEAR,
    ),
    Setting(
        "retry_base", "retry-base", "backoff after the first failure; doubles", Unit.TIME, 100, most=YEAR
    ),
    Setting("retry_max", "retry-max", "longest backoff after failures", Unit.TIME, 100, most=YEAR),
    Setting(
        "overpromise",
        "overpromise",
        "what is done with quotas of more GPUs than there are",
        Unit.WORD,
        words=("mark", "refuse"),
    ),
    Setting(
        "share_across_users",
        "share-across-users",
        "whether users of a shared machine share a GPU in parts",
        Unit.WORD,
        words=("no", "project", "yes"),
    ),
    Setting("keep_deleted", "keep-deleted", "how long files of deleted jobs are kept", Unit.TIME, most=YEAR),
    Setting(
        "keep_finished",
        "keep-finished",
        "how long jobs that ended are listed before they are deleted",
        Unit.TIME,
        most=10 * YEAR,
        special="for ever",
    ),
    Setting(
        "keep_history",
        "keep-history",
        "how long history and deleted jobs are remembered",
        Unit.TIME,
        least=3_600_000,
        most=10 * YEAR,
    ),
    Setting(
        "keep_audit",
        "keep-audit",
        "how long the audit is kept",
        Unit.TIME,
        least=3_600_000,
        most=10 * YEAR,
    ),
    Setting(
        "session_length",
        "session-length",
        "how long a login by password lasts",
        Unit.TIME,
        least=3_600_000,
        most=YEAR,
    ),
    Setting(
        "session_idle",
        "session-idle",
        "how long a login lasts that is not used",
        Unit.TIME,
        most=YEAR,
        special="off",
    ),
    Setting(
        "request_rate",
        "request-rate",
        "most requests of one identity in a second",
        Unit.COUNT,
        most=1_000_000,
        special="off",
    ),
    Setting("password_least", "password-least", "fewest characters of a new password", Unit.COUNT, 8, 64),
)
SECURITY = frozenset({"session_length", "session_idle", "password_least", "request_rate"})
"""Fields of the settings about logins and requests."""
BY_FIELD = {setting.field: setting for setting in SETTINGS}

KEY = "scheduling"
"""Key under which the store keeps, as JSON, what differs from the built-in values."""


def restored(base: Settings, text: str) -> Settings:
    """`base` with the values that the store kept, without those that this version does not know."""
    if not text:
        return base
    kept = json.loads(text)
    return replace(base, **{name: value for name, value in kept.items() if name in BY_FIELD})


BY_NAME = {setting.name: setting for setting in SETTINGS}


def read(typed: Mapping[str, str | None]) -> dict[str, int | str | None]:
    """Names and texts that people type, as fields and values; None: the built-in value. Raises BadRequest."""
    made: dict[str, int | str | None] = {}
    for name, text in typed.items():
        setting = BY_NAME.get(name)
        if setting is None:
            near = get_close_matches(name, BY_NAME, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(BY_NAME)}."
            raise BadRequest(f"There is no scheduling setting {name[:40]!r}.", hint)
        made[setting.field] = None if text is None else setting.read(text)
    return made


def changed(settings: Settings, change: Mapping[str, int | str | None]) -> Settings:
    """The settings with these fields; None: the built-in value. Raises BadRequest."""
    default = Settings()
    named: dict[str, int | str] = {}
    for name, value in change.items():
        setting = BY_FIELD[name]
        named[name] = getattr(default, name) if value is None else value
        setting.check(named[name])
    made = replace(settings, **named)  # type: ignore[arg-type]  # each was checked against its unit
    if made.past_use_half_life > made.past_use_window:
        raise BadRequest(
            f"past-use-half-life {format_duration(made.past_use_half_life)} is longer than"
            f" past-use-window {format_duration(made.past_use_window)}.",
            "Make the window longer or the half-life shorter.",
        )
    if 0 < made.session_idle < 2 * 3_600_000:
        raise BadRequest(
            "session-idle is below 2h: a login that is used is noted once an hour.",
            "Give 2h or more, or off.",
        )
    for most, least in (("retry_max", "retry_base"), ("grow_wait_max", "grow_every")):
        if getattr(made, most) < getattr(made, least):
            raise BadRequest(
                f"{BY_FIELD[most].name} {format_duration(getattr(made, most))} is below"
                f" {BY_FIELD[least].name} {format_duration(getattr(made, least))}.",
                "Raise the one or lower the other.",
            )
    return made
