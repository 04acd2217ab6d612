"""The exceptions of elastic training. Each message says what is wrong, where, and what to do."""

PROTOCOL = 1  # version of the messages to the master, which refuses workers of another version
EX_TEMPFAIL = 75  # exit code of a worker that the master refused


def count(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


class TrainError(Exception):
    """Any error of the library; the message names the remedy."""


class BadSettings(TrainError):
    """A setting or a call of the script is invalid."""


class BadData(TrainError):
    """The dataset is empty, has shrunk, or a record of it cannot be read."""


class BadCheckpoint(TrainError):
    """A checkpoint is missing or damaged, belongs to another script, or cannot be written."""


class MasterAway(TrainError):
    """The master did not answer within the caller's `patience_s`."""


class Refused(TrainError):
    """The master answered with an error. `code` is its stable identifier, `status` the HTTP status."""

    def __init__(self, message: str, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class JobFailed(TrainError):
    """The job has failed; the message gives the cause."""


class GenerationOver(Exception):
    """Internal: this generation's communicator is gone; the next generation redoes the step."""


class Left(SystemExit):
    """This worker was asked to leave and has done so; it ends the script with exit code 0."""
