"""Users, applications and their access rules as of the newest cycle; immutable."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pliant.model.identity import APPLICATION as APPLICATION_KIND
from pliant.model.identity import (
    NO_UID,
    AccessKey,
    AccessRule,
    Allowance,
    Application,
    CustomRole,
    EndedSession,
    LoginSession,
    User,
)
from pliant.model.identity import USER as USER_KIND
from pliant.model.rights import ROLES, Grant, Role, role_named


@dataclass(frozen=True, slots=True)
class Access:
    """Mappings by id, except `allowances` by (subject, project), `user_names` by name, `by_subject`."""

    users: Mapping[str, User] = field(default_factory=dict)
    applications: Mapping[str, Application] = field(default_factory=dict)
    keys: Mapping[str, AccessKey] = field(default_factory=dict)
    rules: Mapping[str, AccessRule] = field(default_factory=dict)
    sessions: Mapping[str, LoginSession] = field(default_factory=dict)
    allowances: Mapping[tuple[str, str], Allowance] = field(default_factory=dict)
    roles: Mapping[int, CustomRole] = field(default_factory=dict)
    ended: Mapping[str, EndedSession] = field(default_factory=dict)
    user_names: Mapping[str, User] = field(default_factory=dict)
    clients: Mapping[str, Application | AccessKey] = field(default_factory=dict)  # by client id
    by_subject: Mapping[str, tuple[AccessRule, ...]] = field(default_factory=dict)

    def grants(self, subjects: Iterable[str], uid: int = NO_UID) -> tuple[Grant, ...]:
        """What rules grant to these subjects. Rules for another uid or a disabled role grant nothing."""
        return tuple(
            self.grant(rule)
            for subject in subjects
            for rule in self.by_subject.get(subject, ())
            if rule.uid in (NO_UID, uid) and (rule.role not in self.roles or self.roles[rule.role].enabled)
        )

    def grant(self, rule: AccessRule) -> Grant:
        """What a rule grants if its role is enabled."""
        made = self.roles.get(rule.role)
        return rule.grant if made is None else Grant(rule.role, rule.scope, made.rights)

    def role(self, key: str) -> Role | CustomRole | None:
        """The role with that id, name or alias, in any case."""
        plain = key.strip().casefold()
        made = (row for row in self.roles.values() if plain in (str(row.id), row.name.casefold()))
        return role_named(key) or next(made, None)

    def role_name(self, identity: int) -> str:
        found = self.roles.get(identity) or next((it for it in ROLES if it.id == identity), None)
        return str(identity) if found is None else found.name

    def subject_name(self, subject: str) -> str:
        """The name of a subject, for people."""
        kind, _, identity = subject.partition(":")
        if kind == USER_KIND and identity in self.users:
            return self.users[identity].name
        if kind == APPLICATION_KIND and identity in self.applications:
            return self.applications[identity].name
        return identity

    def alive(self, subject: str) -> bool:
        """False for a user or an application that is gone or disabled."""
        kind, _, identity = subject.partition(":")
        if kind == USER_KIND:
            return identity in self.users and self.users[identity].enabled
        if kind == APPLICATION_KIND:
            return identity in self.applications and self.applications[identity].enabled
        return True


def access_of(
    users: Mapping[str, User],
    applications: Mapping[str, Application],
    keys: Mapping[str, AccessKey],
    rules: Mapping[str, AccessRule],
    sessions: Mapping[str, LoginSession],
    allowances: Mapping[tuple[str, str], Allowance],
    roles: Mapping[int, CustomRole],
    ended: Mapping[str, EndedSession],
) -> Access:
    """An Access of these rows, with its indexes; the mappings are copied."""
    by_subject: dict[str, tuple[AccessRule, ...]] = {}
    for rule in rules.values():
        by_subject[rule.subject] = (*by_subject.get(rule.subject, ()), rule)
    clients: dict[str, Application | AccessKey] = {row.client: row for row in applications.values()}
    clients |= {row.client: row for row in keys.values()}
    return Access(
        dict(users),
        dict(applications),
        dict(keys),
        dict(rules),
        dict(sessions),
        dict(allowances),
        dict(roles),
        dict(ended),
        {row.name: row for row in users.values()},
        clients,
        by_subject,
    )
