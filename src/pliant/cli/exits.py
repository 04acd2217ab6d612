"""Exit codes: 0 success, 1 failure, 2 wrong input, 3 not found, 4 not allowed, 5 conflict, 6 refused by quota
or policy, 7 a wait that timed out, 8 no server, 130 Ctrl-C.

exec and bash return the command's own code. run, wait, attach, logs -f and submit --attach return the job's
code: see OWN_FAILURE.
"""

from pliant.client import errors

_CODES: tuple[tuple[type[errors.PliantError], int], ...] = (
    (errors.BadRequest, 2),
    (errors.NotFound, 3),
    (errors.Unauthorized, 4),
    (errors.Conflict, 5),
    (errors.Refused, 6),
    (errors.Unreachable, 8),
)
TIMED_OUT = 7
INTERRUPTED = 130

OWN_FAILURE = 125
"""Pliant itself failed, in a command that returns a job's exit code; there 1 to 8 are codes of the job."""
WAIT_TIMED_OUT = 124


def code_of(error: errors.PliantError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)
