"""Use cases about notices: subscriptions, notices still to be sent, and the mail server."""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace

from pliant.control.errors import Conflict, NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.model.notice import TEST, MailServer, Notice, Subscription

MOST = 5
"""Most addresses of one user."""


class Notices:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def subscriptions(self) -> Sequence[Subscription]:
        """Oldest first."""
        rows = self._loop.look(lambda state: [*state.subscriptions.values()])
        return sorted(rows, key=lambda row: (row.created, row.id))

    def mail_server(self) -> MailServer | None:
        return self._loop.look(lambda state: state.mail_server)

    def pending(self) -> Sequence[Notice]:
        """Oldest first."""
        rows = self._loop.look(lambda state: [*state.notices.values()])
        return sorted(rows, key=lambda row: (row.at, row.id))

    def subscribe(self, wanted: Subscription) -> Subscription:
        def run(draft: Draft) -> Subscription:
            own = [row for row in self._loop.state.subscriptions.values() if row.user == wanted.user]
            if any((row.kind, row.address) == (wanted.kind, wanted.address) for row in own):
                raise Conflict(
                    "This address already has a notification.",
                    "See yours with: pliant notify list",
                    field="address",
                )
            if len(own) >= MOST:
                raise Conflict(
                    f"{len(own)} notifications exist already, the maximum.", "pliant notify remove ID"
                )
            row = replace(wanted, id=str(uuid.uuid4()), created=draft.now)
            draft.put(row)
            return row

        return self._loop.call(run)

    def unsubscribe(self, identity: str) -> None:
        """Remove a subscription with its notices that are still to be sent."""

        def run(draft: Draft) -> None:
            state = self._loop.state
            if (row := state.subscriptions.get(identity)) is None:
                raise NotFound(f"There is no notification {identity[:60]!r}.", "pliant notify list")
            draft.drop(row)
            for notice in state.notices.values():
                if notice.subscription == identity:
                    draft.drop(notice)

        self._loop.call(run)

    def test(self, identities: Collection[str], user: str) -> int:
        """Record a test notice for each of these subscriptions; how many."""

        def run(draft: Draft) -> int:
            for identity in identities:
                words = f"{user} asked for this test."
                draft.put(Notice(str(uuid.uuid4()), identity, TEST, draft.now, "", "", "", user, words))
            return len(identities)

        return self._loop.call(run)

    def told(self, notices: Collection[Notice]) -> None:
        """Drop notices that are no longer to be sent."""

        def run(draft: Draft) -> None:
            known = self._loop.state.notices
            for row in notices:
                if row.id in known:
                    draft.drop(row)

        self._loop.call(run)

    def set_mail_server(self, row: MailServer | None) -> None:
        """None: no mail is sent any more."""

        def run(draft: Draft) -> None:
            known = self._loop.state.mail_server
            if row is not None:
                draft.put(row)
            elif known is not None:
                draft.drop(known)

        self._loop.call(run)
