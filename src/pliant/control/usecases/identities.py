"""Use cases about users, applications, their keys and sessions, and the rules that give them roles."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pliant.control.board.access import Access
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.ports import AccessRow
from pliant.control.state.draft import Draft
from pliant.model.identity import (
    APPLICATION,
    NO_UID,
    USER,
    AccessKey,
    AccessRule,
    Account,
    Application,
    LoginSession,
    User,
    subject_of,
)
from pliant.model.rights import SYSTEM, TENANT, Grant, Place

T = TypeVar("T")

MOST_KEYS = 20
"""Most access keys of one owner."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a login provider reports of a user, or what remains if it reports nothing any more."""

    by: str
    groups: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()  # what the groups give
    again: str | None = ""  # sealed; None: unchanged
    heard: bool = True  # True: reported just now
    email: str | None = None  # None: unchanged
    account: Account | None = None  # of this machine; None: unchanged


class Identities:
    """Every method returns once the change is on disk; it applies from the next request on."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @property
    def _seen(self) -> Access:
        return self._loop.state.access.seen

    # -- people -------------------------------------------------------------------------------------

    def create_user(self, name: str, password: str, by: str, account: Account | None = None) -> User:
        """`password`: its hash; the user must change it first."""
        if not 0 < len(name) <= 128 or not name.isprintable() or ":" in name or name != name.strip():
            raise BadRequest(
                f"{name[:40]!r} cannot be a user's name.",
                "Use 1 to 128 printable characters, none of them ':'.",
                field="username",
            )

        def run(draft: Draft) -> User:
            self._check_free(name, "username")
            row = User(
                str(uuid.uuid4()), name, password, True, account=account, created=draft.now, created_by=by
            )
            draft.put(row)
            return row

        return self._loop.call(run)

    def _taken_by(self, name: str) -> str:
        """The kind of what has that name; '' if it is free. What is theirs may go by the name alone."""
        if name in self._seen.user_names:
            return "A user"
        programs = self._seen.applications.values()
        return "An application" if any(row.name == name for row in programs) else ""

    def _check_free(self, name: str, field: str) -> None:
        if kind := self._taken_by(name):
            raise NameTaken(f"{kind} named {name!r} already exists.", "Choose another name.", field=field)

    def user(self, key: str) -> User:
        """The user with that id or name. Raises NotFound."""
        access = self._loop.board.access
        found = access.users.get(key) or access.user_names.get(key)
        if found is None:
            raise NotFound(
                f"There is no user {key[:60]!r}.", "See them with: pliant user list", field="subjectId"
            )
        return found

    def set_password(self, identity: str, password: str, *, must_change: bool) -> User:
        """Set it, and end all sessions and tokens of the old one."""
        return self._change_user(
            identity,
            lambda row: replace(
                row, password=password, must_change=must_change, generation=row.generation + 1
            ),
        )

    def enable_user(self, identity: str, on: bool) -> User:
        return self._change_user(identity, lambda row: replace(row, enabled=on), ends=not on)

    def bind_user(self, identity: str, account: Account | None) -> User:
        return self._change_user(identity, lambda row: replace(row, account=account), ends=False)

    def log_out(self, identity: str) -> User:
        """End all sessions and tokens of a user."""
        return self._change_user(identity, lambda row: replace(row, generation=row.generation + 1))

    def _change_user(self, identity: str, change: Callable[[User], User], *, ends: bool = True) -> User:
        def run(draft: Draft) -> User:
            row = self._seen.users.get(identity)
            if row is None:
                raise NotFound(f"There is no user {identity[:60]!r}.", "See them with: pliant user list")
            made = replace(change(row), updated=draft.now)
            if not made.enabled:
                self._check_last(identity)
            draft.put(made)
            if ends:
                self._end_sessions(draft, subject_of(USER, identity))
            return made

        return self._loop.call(run)

    def delete_user(self, identity: str) -> None:
        """Delete a user with all rules, keys and sessions. The user's jobs continue."""

        def run(draft: Draft) -> None:
            row = self._seen.users.get(identity)
            if row is None:
                raise NotFound(f"There is no user {identity[:60]!r}.", "See them with: pliant user list")
            self._check_last(identity)
            self._forget(draft, row, subject_of(USER, identity))

        self._loop.call(run)

    def _forget(self, draft: Draft, row: AccessRow, subject: str) -> None:
        draft.drop(row)
        for rule in self._seen.by_subject.get(subject, ()):
            draft.drop(rule)
        for key in self._seen.keys.values():
            if key.owner == subject:
                draft.drop(key)
        self._end_sessions(draft, subject)

    def _check_last(self, identity: str, *, but: str = "") -> None:
        """Raise Conflict if no administrator would be left without that user (or without the rule `but`)."""

        def administrators(without: str, rule_gone: str) -> set[str]:
            return {
                rule.subject
                for rule in self._seen.rules.values()
                if rule.role == SYSTEM.id
                and rule.scope == TENANT
                and rule.id != rule_gone
                and rule.subject.startswith(f"{USER}:")
                and rule.subject != subject_of(USER, without)
                and self._seen.alive(rule.subject)
            }

        if administrators("", "") and not administrators(identity, but):
            raise Conflict(
                "This is the last system administrator among the users.",
                "Give another user the role first: pliant access-rule create",
            )

    # -- programs and keys --------------------------------------------------------------------------

    def create_application(
        self, name: str, client: str, secret: str, by: str, account: Account | None = None
    ) -> Application:
        """`secret`: its digest."""

        def run(draft: Draft) -> Application:
            self._check_free(name, "name")
            identity = str(uuid.uuid4())
            row = Application(
                identity, name, client, secret, account=account, created=draft.now, created_by=by
            )
            draft.put(row)
            return row

        return self._loop.call(run)

    def change_application(self, identity: str, change: Callable[[Application], Application]) -> Application:
        """Change it; tokens that were issued for it before become invalid."""

        def run(draft: Draft) -> Application:
            row = self._application(identity)
            made = replace(change(row), generation=row.generation + 1, updated=draft.now)
            draft.put(made)
            return made

        return self._loop.call(run)

    def delete_application(self, identity: str) -> None:
        def run(draft: Draft) -> None:
            self._forget(draft, self._application(identity), subject_of(APPLICATION, identity))

        self._loop.call(run)

    def _application(self, identity: str) -> Application:
        row = self._seen.applications.get(identity)
        if row is None:
            raise NotFound(f"There is no application {identity[:60]!r}.", "See them with: pliant app list")
        return row

    def create_key(self, made: AccessKey) -> AccessKey:
        def run(draft: Draft) -> AccessKey:
            own = [row for row in self._seen.keys.values() if row.owner == made.owner]
            if any(row.name == made.name for row in own):
                raise NameTaken(f"You have an access key named {made.name!r}.", "Choose another name.")
            if len(own) >= MOST_KEYS:
                raise Conflict(f"You have {len(own)} access keys, the maximum.", "pliant key revoke NAME")
            row = replace(made, created=draft.now)
            draft.put(row)
            return row

        return self._loop.call(run)

    def renew_key(self, identity: str, secret: str) -> AccessKey:
        def run(draft: Draft) -> AccessKey:
            row = self._key(identity)
            made = replace(row, secret=secret, generation=row.generation + 1)
            draft.put(made)
            return made

        return self._loop.call(run)

    def delete_key(self, identity: str) -> None:
        def run(draft: Draft) -> None:
            draft.drop(self._key(identity))

        self._loop.call(run)

    def _key(self, identity: str) -> AccessKey:
        row = self._seen.keys.get(identity)
        if row is None:
            raise NotFound(f"There is no access key {identity[:60]!r}.", "See yours with: pliant key list")
        return row

    # -- sessions -----------------------------------------------------------------------------------

    def begin_session(self, identity: str, source: str) -> LoginSession | None:
        """Begin a session of the length in the settings; expired sessions are dropped.

        None: the user has been deleted.
        """

        def run(draft: Draft) -> LoginSession | None:
            row = self._seen.users.get(identity)
            return self._session(draft, row, source) if row is not None else None

        return self._loop.call(run)

    def _session(self, draft: Draft, user: User, source: str) -> LoginSession:
        for old in self._seen.sessions.values():
            if old.expires <= draft.now:
                draft.drop(old)
        subject = subject_of(USER, user.id)
        until = self._session_end(draft.now, draft.now)
        row = LoginSession(str(uuid.uuid4()), subject, 0, draft.now, until, source)
        draft.put(row)
        draft.put(replace(user, last_login=draft.now))
        return row

    def begin_session_of(
        self, identity: str, names: Sequence[str], told: Told, source: str
    ) -> tuple[User, LoginSession]:
        """Begin a session of a user whom a provider has reported; the first login creates the user.

        The new user gets that id, the first of the names that is free, and no password.
        """

        def run(draft: Draft) -> tuple[User, LoginSession]:
            row = self._seen.users.get(identity)
            if row is None:
                name = next((name for name in names if not self._taken_by(name)), identity)
                row = User(identity, name, "", created=draft.now, created_by=told.by)
            row = self._following(draft, row, told)
            return row, self._session(draft, row, source)

        return self._loop.call(run)

    def follow(self, seen: User, told: Told, *, over: bool = False) -> None:
        """Apply what the provider now reports of a user who logged in before. `over`: end the sessions, too.

        Changes nothing if the provider has reported the user again since `seen`.
        """

        def run(draft: Draft) -> None:
            row = self._seen.users.get(seen.id)
            if row is not None and row.told == seen.told:
                draft.put(self._following(draft, row, told))
                if over:
                    self._end_sessions(draft, subject_of(USER, seen.id))

        self._loop.call(run)

    def keep(self, identity: str, again: str) -> None:
        """Store what to ask the provider with from now on, sealed."""

        def run(draft: Draft) -> None:
            if (row := self._seen.users.get(identity)) is not None:
                draft.put(replace(row, again=again))

        self._loop.call(run)

    def _following(self, draft: Draft, row: User, told: Told) -> User:
        """The user as reported now; drops the rules that the provider no longer gives, adds new ones."""
        subject, wanted = subject_of(USER, row.id), set(told.grants)
        given = {
            rule.grant: rule for rule in self._seen.by_subject.get(subject, ()) if rule.created_by == told.by
        }
        for grant, rule in given.items():
            if grant not in wanted:
                draft.drop(rule)
        for grant in sorted(wanted - given.keys(), key=lambda it: (it.role, it.scope.project)):
            draft.put(
                AccessRule(str(uuid.uuid4()), subject, grant.role, grant.scope, NO_UID, draft.now, told.by)
            )
        again = row.again if told.again is None else told.again
        email = row.email if told.email is None else told.email
        at = draft.now if told.heard else row.told
        account = told.account or row.account
        return replace(row, groups=told.groups, again=again, told=at, email=email, account=account)

    def use_session(self, identity: str, uses: int) -> LoginSession | None:
        """Count a refresh. None: there is no such session, or the token was used twice, which ends it."""

        def run(draft: Draft) -> LoginSession | None:
            row = self._seen.sessions.get(identity)
            if row is None or row.expires <= draft.now:
                return None
            if row.uses != uses:
                draft.drop(row)
                return None
            made = replace(row, uses=uses + 1, expires=self._session_end(row.created, draft.now))
            draft.put(made)
            return made

        return self._loop.call(run)

    def _session_end(self, begun: int, used: int) -> int:
        settings = self._loop.state.settings
        whole = begun + settings.session_length
        return min(whole, used + settings.session_idle) if settings.session_idle else whole

    def end_session(self, identity: str) -> None:
        def run(draft: Draft) -> None:
            if (row := self._seen.sessions.get(identity)) is not None:
                draft.drop(row)

        self._loop.call(run)

    def _end_sessions(self, draft: Draft, subject: str) -> None:
        for row in self._seen.sessions.values():
            if row.subject == subject:
                draft.drop(row)

    # -- rules --------------------------------------------------------------------------------------

    def create_rule(self, subject: str, role: int, scope: Place, by: str, uid: int = NO_UID) -> AccessRule:
        def run(draft: Draft) -> AccessRule:
            for rule in self._seen.by_subject.get(subject, ()):
                if (rule.role, rule.scope, rule.uid) == (role, scope, uid):
                    raise NameTaken("This access rule exists already.", f"Its id is {rule.id}.")
            row = AccessRule(str(uuid.uuid4()), subject, role, scope, uid, draft.now, by)
            draft.put(row)
            return row

        return self._loop.call(run)

    def delete_rule(self, identity: str) -> None:
        def run(draft: Draft) -> None:
            row = self._seen.rules.get(identity)
            if row is None:
                raise NotFound(
                    f"There is no access rule {identity[:60]!r}.", "See them with: pliant access-rule list"
                )
            if row.role == SYSTEM.id and row.scope == TENANT and row.subject.startswith(f"{USER}:"):
                self._check_last("", but=identity)
            draft.drop(row)

        self._loop.call(run)
