"""Use cases about scheduling settings: changed while the server runs, stored, audited as an event."""

import json
from collections.abc import Mapping

from pliant.control.board.view import CLUSTER
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.state.setting import BY_FIELD, KEY, SETTINGS, changed
from pliant.model.event import EventKind
from pliant.sched.settings import Settings


class Tuning:
    """The part of the service that is about scheduling settings."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def tune(self, change: Mapping[str, int | str | None], user: str) -> Settings:
        """Set these fields of Settings from the next cycle on; None: back to the built-in value."""

        def run(draft: Draft) -> Settings:
            state = self._loop.state
            before, after = state.settings, changed(state.settings, change)
            words = [
                f"{it.name} {it.show(getattr(after, it.field))} (was {it.show(getattr(before, it.field))})"
                for it in SETTINGS
                if getattr(after, it.field) != getattr(before, it.field)
            ]
            if not words:
                return after
            default = Settings()
            kept = {
                name: value for name in BY_FIELD if (value := getattr(after, name)) != getattr(default, name)
            }
            draft.settings[KEY] = json.dumps(kept, sort_keys=True)
            draft.event(CLUSTER, EventKind.UPDATED, f"{user} set {', '.join(words)}.", who=user)
            state.settings, state.moved = after, True
            return after

        return self._loop.call(run)
