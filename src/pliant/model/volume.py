"""Data that a task finds when it starts. The engine provides it."""

from dataclasses import dataclass

GIT, HOST_PATH, NFS = "git", "hostPath", "nfs"


@dataclass(frozen=True, slots=True)
class Volume:
    kind: str  # git | hostPath | nfs
    source: str  # address of the repository, or a path: on the node, or of the NFS server
    target: str = ""  # where the task finds it; empty: where the engine puts it
    server: str = ""  # of NFS
    read_only: bool = False
    branch: str = ""  # of a repository; empty: its own default
    revision: str = ""  # of a repository; empty: the newest of the branch
    login: bool = False  # user and password are in the variables `login_variables` of its place in the list
    name: str = ""


def login_variables(place: int) -> tuple[str, str]:
    """The names of the variables with (user, password) of the volume at that place in the list."""
    return f"VOLUME_{place}_USER", f"VOLUME_{place}_PASSWORD"
