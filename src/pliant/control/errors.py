"""Errors for people: what is wrong, where, and what to do. Nothing was changed when one is raised."""


class Refused(Exception):
    """A request that cannot be met. `code` is a stable word for machines."""

    code = "refused"

    def __init__(self, message: str, hint: str = "", *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field  # path in the request's body of what is wrong; '': it is no single field

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class BadRequest(Refused):
    code = "bad-request"


class NoCommand(BadRequest):
    """The command of a submission is not there."""

    code = "command-not-found"


class NotExecutable(BadRequest):
    """The command of a submission is there, and is no program."""

    code = "not-executable"


class NotFound(Refused):
    code = "not-found"


class NameTaken(Refused):
    code = "name-exists"


class Conflict(Refused):
    """The thing is not in a state that allows this."""

    code = "conflict"


class NoInput(Conflict):
    """Nothing can be typed into that task, now or later."""

    code = "no-input"


class Outdated(Refused):
    """It was changed by somebody since the caller read it."""

    code = "precondition-failed"


class OverQuota(Refused):
    code = "over-quota"


class OverLimit(Refused):
    """The caller has or does as much as one person may."""

    code = "user-limit"


class Unavailable(Refused):
    """The server cannot do it now, e.g. because its disk is full."""

    code = "unavailable"
