"""Errors for people: what is wrong, where, and what to do. Nothing was changed when one is raised."""


class Refused(Exception):
    """A request that cannot be met. `code` is a stable word for machines."""

    code = "refused"

    def __init__(self, message: str, hint: str = "", *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field  # path of the wrong field in the request's body; '': no single one

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class BadRequest(Refused):
    code = "bad-request"


class NoCommand(BadRequest):
    """The command of a submission does not exist."""

    code = "command-not-found"


class NotExecutable(BadRequest):
    """The command of a submission exists, but is no program."""

    code = "not-executable"


class NotFound(Refused):
    code = "not-found"


class NameTaken(Refused):
    code = "name-exists"


class Conflict(Refused):
    """The thing is not in a state that allows this."""

    code = "conflict"


class NoInput(Conflict):
    """That task takes no input, now or later."""

    code = "no-input"


class Outdated(Refused):
    """The object has changed since the caller read it."""

    code = "precondition-failed"


class OverQuota(Refused):
    code = "over-quota"


class OverLimit(Refused):
    """The caller has reached a limit for one user."""

    code = "user-limit"


class Unavailable(Refused):
    """The server cannot do it now, e.g. because its disk is full."""

    code = "unavailable"
