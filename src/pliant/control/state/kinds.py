"""Every kind of row that is stored: those of the world, and those that the loop keeps beside it."""

from pliant.control.ports import Remembered
from pliant.model.asset import Asset
from pliant.model.identity import (
    AccessKey,
    AccessRule,
    Allowance,
    Application,
    CustomRole,
    EndedSession,
    LoginSession,
    User,
)
from pliant.model.ledger import Usage
from pliant.model.machine import Cluster
from pliant.model.notice import MailServer, Notice, Subscription
from pliant.model.priority import PriorityClass
from pliant.model.progress import Progress
from pliant.model.workload import Attempt
from pliant.sched.world.rows import WORLD_ROWS, RowKind, RowKinds

STORED_ROWS = RowKinds(
    (
        RowKind(Cluster, "clusters", ("uuid",)),
        *WORLD_ROWS.kinds,
        RowKind(Attempt, "attempts", ("id.workload", "id.task", "id.number")),
        RowKind(Progress, "progresses", ("workload",)),
        RowKind(PriorityClass, "priority_classes", ("name",)),
        RowKind(Asset, "assets", ("id",)),
        RowKind(User, "users", ("id",)),
        RowKind(Application, "applications", ("id",)),
        RowKind(AccessKey, "access_keys", ("id",)),
        RowKind(AccessRule, "access_rules", ("id",)),
        RowKind(CustomRole, "custom_roles", ("id",)),
        RowKind(LoginSession, "login_sessions", ("id",)),
        RowKind(EndedSession, "ended_sessions", ("id",)),
        RowKind(Allowance, "allowances", ("subject", "project")),
        RowKind(Usage, "usages", ("day", "user", "project", "pool")),
        RowKind(Subscription, "subscriptions", ("id",)),
        RowKind(Notice, "notices", ("id",)),
        RowKind(MailServer, "mail_servers", ("name",)),
        RowKind(Remembered, "remembered", ("key",)),
    )
)
