"""Makes the task groups that a submission defines itself, and checks their levels."""

from dataclasses import replace

from pliant.control.errors import BadRequest
from pliant.control.submit.placing import check_placing, named_within
from pliant.control.submit.submission import (
    Distribution,
    GroupAsk,
    Submission,
    check_name,
    launch_of,
    priority_of,
    request_of,
)
from pliant.model.workload import SubGroup, TaskGroup

MOST_TASKS = 10_000


def declared(chosen: Distribution) -> tuple[TaskGroup, ...]:
    """The groups, checked together with their levels."""
    names = [group.name for group in chosen.groups] + [level.name for level in chosen.levels]
    for name in names:
        check_name(name, "group")
        if names.count(name) > 1:
            raise BadRequest(f"{name} is named twice.", "Give each group and each level a name of its own.")
    _check_levels(chosen)
    made = tuple(_group(group) for group in chosen.groups)
    if sum(group.max for group in made) > MOST_TASKS:
        raise BadRequest("Too many tasks.", f"Request at most {MOST_TASKS}.")
    return made


def _group(ask: GroupAsk) -> TaskGroup:
    least = ask.tasks if ask.least is None else ask.least
    most = ask.tasks if ask.most is None else ask.most
    if not 0 <= least <= ask.tasks <= most <= MOST_TASKS or most < 1:
        raise BadRequest(
            f"Task counts of {ask.name} must satisfy min ≤ requested ≤ max; "
            f"got {least}, {ask.tasks}, {most}.",
            f"These are minReplicas, replicas and maxReplicas, at most {MOST_TASKS}.",
        )
    group = TaskGroup(
        ask.name,
        request_of(ask.each),
        min=least,
        wanted=ask.tasks,
        max=most,
        launch=launch_of(ask.each),
        parent=ask.parent,
        within=named_within(ask.each.placing),
    )
    return replace(of_its_own(group, ask.each), apart=ask.each.placing.apart)


def of_its_own(group: TaskGroup, ask: Submission) -> TaskGroup:
    """The group with its own priority and its own constraints on nodes."""
    placing = check_placing(ask.placing)
    return replace(
        group,
        priority=priority_of(ask)[0] if ask.priority else None,
        affinity=placing.affinity,
        tolerations=placing.tolerations,
    )


def _check_levels(chosen: Distribution) -> None:
    above = {level.name: level.parent for level in chosen.levels}
    children: dict[str, int] = {"": 0, **dict.fromkeys(above, 0)}
    for name, parent in [*above.items(), *((group.name, group.parent) for group in chosen.groups)]:
        if parent not in children:
            raise BadRequest(f"{name} belongs to {parent!r}, which is not a level.", "Name it in subGroups.")
        children[parent] += 1
    for name, now in above.items():
        seen = {name}
        while now:
            if now in seen:
                raise BadRequest(f"Level {name} is above itself.", "It belongs to another one or to none.")
            seen.add(now)
            now = above[now]
    top = SubGroup("", min=chosen.least_groups)
    for level in (top, *chosen.levels):
        what = f"level {level.name}" if level.name else "the workload"
        if not children[level.name]:
            raise BadRequest(f"Nothing belongs to {what}.", "Leave it out, or let a group belong to it.")
        if level.min is not None and not 0 < level.min <= children[level.name]:
            raise BadRequest(
                f"{what.capitalize()} cannot need {level.min} of {children[level.name]}.",
                "minGroups is 1 or more, and not more than belong to it.",
            )
