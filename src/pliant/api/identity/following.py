"""Keeps rights in step with the groups of a login provider: asks it about each user also without a login."""

import logging
import threading
import time

from pliant.api.context import Context
from pliant.api.errors import Unauthorized
from pliant.api.identity.openid import NotKnown
from pliant.api.identity.signin import AGAIN, admitted, logins, sealed, told_of, user_id
from pliant.api.identity.tokens import LIFE
from pliant.control.errors import Conflict, Unavailable
from pliant.control.ports import StaleEpoch
from pliant.control.usecases.identities import Told
from pliant.model.identity import USER, User, subject_of

log = logging.getLogger(__name__)

EVERY = 900.0
"""Seconds after which the provider is asked again about a user."""

LASTS = float(LIFE)
"""Seconds for which unconfirmed groups count: as long as an access token."""

LOOK = 60.0

PATIENCE = 3
"""Unanswered questions after which one round asks no more."""

FROM = "openid "
"""Beginning of `created_by` of users that a provider has named, also one that is no longer set."""


class Following:
    def __init__(self, here: Context) -> None:
        self._here = here
        self._provider = logins(here).relying

    def start(self) -> None:
        threading.Thread(target=self._run, name="pliant-openid", daemon=True).start()

    def _run(self) -> None:
        every = 0.0  # after a start, ask about every user
        while True:
            try:
                self.look(every)
            except StaleEpoch:
                return  # another server leads and asks
            except Exception as error:  # noqa: BLE001 - whatever ails store or provider, the next look comes
                log.error("groups of the login provider could not be followed: %r", error)
            every = EVERY
            time.sleep(LOOK)

    def look(self, every: float = EVERY, lasts: float = LASTS) -> None:
        """Check all users whose groups come from a provider, once."""
        now, unanswered = self._here.service.now(), 0
        by = self._provider.provider.by
        for user in self._here.service.board.access.users.values():
            age = (now - user.told) / 1000
            if user.again and user.created_by == by and age >= every and unanswered < PATIENCE:
                try:
                    self._ask(user)
                    continue
                except Unauthorized as error:
                    log.warning("openid: %s has to log in again: %s", user.name, error)
                    self._lose(user, over=True)
                    continue
                except Unavailable as error:
                    unanswered += 1
                    log.warning("openid: the groups of %s are not known now: %s", user.name, error)
            if user.created_by.startswith(FROM) and age >= lasts and self._has(user):
                log.warning("openid: the groups of %s were not confirmed and count no more", user.name)
                self._lose(user, over=False)

    def _ask(self, user: User) -> None:
        """Raises Unauthorized, Unavailable."""
        provider = self._provider.provider
        try:
            opened = self._here.authority.vault.opened(user.again, "This login was", "Log in again.")
        except Conflict as error:
            raise NotKnown(str(error)) from error
        person = self._provider.again(opened[AGAIN], lambda token: self._keep(user, token))
        if user_id(provider.issuer, person.subject) != user.id:
            raise NotKnown("the provider named another person")
        if not admitted(provider, person):
            raise NotKnown("they are in none of the groups that may log in here")
        self._here.service.identities.follow(user, told_of(self._here, provider, person))

    def _keep(self, user: User, token: str) -> None:
        self._here.service.identities.keep(user.id, sealed(self._here, token))

    def _lose(self, user: User, *, over: bool) -> None:
        """Take the user's groups away. `over`: the provider refused, so end the sessions and ask no more."""
        left = Told(user.created_by, again="" if over else None, heard=False)
        self._here.service.identities.follow(user, left, over=over)

    def _has(self, user: User) -> bool:
        rules = self._here.service.board.access.by_subject.get(subject_of(USER, user.id), ())
        return bool(user.groups) or any(rule.created_by == user.created_by for rule in rules)
