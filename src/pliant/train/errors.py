"""What can go wrong in an elastic job, as types. Each message says what is wrong, where, what to do."""

PROTOCOL = 1  # of the messages to the master; parties of another version are refused
EX_TEMPFAIL = 75  # exit code of a worker that the job dropped


def count(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


class TrainError(Exception):
    """Any error of the library; the message names the cure."""


class BadSettings(TrainError):
    """The script asks for something that cannot be trained as asked."""


class BadData(TrainError):
    """The dataset is empty, has shrunk, or a record of it cannot be read."""


class BadCheckpoint(TrainError):
    """A checkpoint is truncated, or belongs to another model."""


class MasterAway(TrainError):
    """The master did not answer for longer than the caller's patience."""


class Refused(TrainError):
    """The master answered with an error. `code` is its stable word, `status` the HTTP status."""

    def __init__(self, message: str, code: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class JobFailed(TrainError):
    """The job is over without success; the message holds the first cause."""


class GenerationOver(Exception):
    """The communicator of this generation is gone. Internal: the step is redone by the next generation."""


class Left(SystemExit):
    """This worker was asked to leave and has done so; it ends the script with exit code 0."""
