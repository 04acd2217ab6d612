"""Turns a submission into a workload."""

import errno
import uuid
from dataclasses import replace

from pliant.control.errors import BadRequest, Unavailable
from pliant.control.ports import Engine
from pliant.control.submit.groups import groups_of, leader_of, variables_of
from pliant.control.submit.placing import check_placing
from pliant.control.submit.submission import (
    Checked,
    Submission,
    backoff_of,
    check_name,
    check_ports,
    check_preemptible,
    check_times,
    launch_of,
    priority_of,
    request_of,
)
from pliant.model.machine import OF_PROJECT
from pliant.model.workload import JOB_FOLDER, Kind, Launch, TaskGroup, Workload


def check(ask: Submission, engine: Engine) -> Checked:
    """The workload that this would become, unsubmitted, and notices for its owner. Raises BadRequest."""
    launch = launch_of(ask)
    if ask.name is not None:
        check_name(ask.name)
    request = request_of(ask)
    groups = groups_of(ask, request)
    value, word, preemptible = priority_of(ask)
    placing = check_placing(ask.placing)
    notices = []
    if engine.unseen(launch):
        if launch.working_dir:
            raise BadRequest(
                f"working directory {launch.working_dir} is not on the server's machine.",
                f"Use --working-dir {JOB_FOLDER} for the job's own folder.",
            )
        launch, groups = _unseen(launch), tuple(map(_unseen_by, groups))
        who = ask.name or "the job"
        notices.append(f"the server does not see this directory; {who} starts in its job folder.")
    sealed = variables_of(ask)
    for name, one in (("", launch), *((group.name, group.launch) for group in groups)):
        refusal = engine.refuse(one, sealed.get(name, ask.variables)) if one is not None else None
        if refusal is not None:
            raise refusal
    if (notice := engine.notice(launch)) is not None:
        notices.append(notice)
    serves = ask.kind is Kind.INFERENCE
    framework = ask.distribution.framework if ask.distribution is not None else ""
    workload = Workload(
        id=str(uuid.uuid4()),
        name=ask.name or "",
        project="",
        kind=ask.kind,
        launch=launch,
        groups=groups,
        priority=value,
        preemptible=preemptible,
        semi_preemptible=ask.semi_preemptible,
        pools=ask.pools,
        affinity=placing.affinity,
        tolerations=placing.tolerations,
        apart=placing.apart,
        backoff_limit=backoff_of(ask),
        backoff_exact=ask.backoff_limit is not None or serves,
        restart=ask.restart or serves,
        framework=framework,
        ports=check_ports(ask),
        slots=ask.distribution.slots if ask.distribution is not None else 1,
        subgroups=ask.distribution.levels if ask.distribution is not None else (),
        min_groups=ask.distribution.least_groups if ask.distribution is not None else None,
        ends_with=leader_of(ask),
        source=ask.source,
        category=ask.category or category_of(ask.kind),
        priority_class=word,
        **ask.fields,
    )
    check_times(workload)
    check_preemptible(workload)
    if ask.start.indexes and ask.kind in (Kind.WORKSPACE, Kind.INFERENCE):
        raise BadRequest("Only trainings can be an array.", "Leave out --array.")
    return Checked(ask, workload, tuple(notices))


def seal(checked: Checked, engine: Engine, identity: str) -> None:
    """Keep the values of its variables before it is recorded: a recorded workload can start at any time.

    `identity`: id of the workload, or of one element of an array.

    Raises Unavailable.
    """
    if not checked.workload.sealed:
        return
    try:
        engine.seal(identity, variables_of(checked.asked))
    except OSError as error:
        where = f" in the state folder: {error.strerror}" if error.strerror else f": {error}"
        raise Unavailable(
            f"The job's environment cannot be saved{where}.",
            f"{_CURES.get(error.errno or 0, 'See the server log')}; nothing was submitted.",
        ) from error


_CURES = {
    errno.ENOSPC: "Free disk space there and submit again",
    errno.EDQUOT: "Free disk space there, or have the disk quota raised, and submit again",
    errno.EACCES: "Let the server's account write there, and submit again",
    errno.EPERM: "Let the server's account write there, and submit again",
    errno.EROFS: "Its disk is mounted read-only: have it mounted for writing, and submit again",
}


def apart(groups: tuple[TaskGroup, ...], account: str, trusted: str, project: str) -> tuple[TaskGroup, ...]:
    """The groups with the owner of their parts of GPUs; `trusted`: the setting share-across-users. There is
    no owner if the machine is not shared (`account` is ''), or if all users share."""
    owner = {"no": account, "project": OF_PROJECT + project, "yes": ""}[trusted] if account else ""
    owned = (replace(it, request=replace(it.request, owner=owner)) for it in groups)
    return tuple(new if new.request.shared else old for old, new in zip(groups, owned, strict=True))


def changed(old: Workload, checked: Checked, trusted: str) -> Workload:
    """The workload changed to that submission, except for what is fixed when it is submitted."""
    new, had = checked.workload, old.launch
    launch = replace(new.launch, variables=had.variables, captured=had.captured, volumes=had.volumes)
    if launch.working_dir == had.working_dir:
        launch = replace(launch, seen=had.seen)
    return replace(
        old,
        launch=launch,
        groups=apart(new.groups, checked.asked.card_owner, trusted, old.project),
        priority=new.priority,
        priority_class=new.priority_class,
        preemptible=new.preemptible,
        semi_preemptible=new.semi_preemptible,
        pools=new.pools,
        node_type=new.node_type,
        affinity=new.affinity,
        category=new.category,
    )


def _unseen(launch: Launch) -> Launch:
    return replace(launch, seen=None)


def _unseen_by(group: TaskGroup) -> TaskGroup:
    return group if group.launch is None else replace(group, launch=_unseen(group.launch))


def category_of(kind: Kind) -> str:
    """The default category of a kind."""
    return {Kind.WORKSPACE: "Build", Kind.INFERENCE: "Deploy"}.get(kind, "Train")
