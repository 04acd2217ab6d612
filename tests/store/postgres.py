"""A PostgreSQL of our own on a socket in a temporary folder, from Debian's package."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.house.gaps import gap

ACCOUNT = "postgres"
DEADLINE = 60  # seconds for the server to answer


class Server:
    """Gives out fresh places for a store: schemas of one database, which are made faster than databases."""

    def __init__(self, folder: Path, user: str) -> None:
        self.folder, self.user, self.count = folder, user, 0

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}@/{database}?host={self.folder}"

    def place(self) -> str:
        """The URL of one that is empty."""
        self.count += 1
        name = f"test_{self.count}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{self.url('postgres')}&options=-csearch_path%3D{name}"


def program(name: str) -> str:
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}")) or [shutil.which(name)]
    if found[-1] is None:
        gap("no PostgreSQL", "apt-get install postgresql")
    return found[-1]


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Runs one; as root it runs as the package's own account, for it refuses to be root."""
    initdb, postgres = program("initdb"), program("postgres")
    user = pwd.getpwuid(os.getuid()).pw_name
    account: dict[str, object] = {}
    if os.getuid() == 0:
        user = ACCOUNT
        entry = pwd.getpwnam(ACCOUNT)
        account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    data = folder / "data"
    options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale", f"--username={user}"]
    done = subprocess.run(
        [initdb, f"--pgdata={data}", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        **account,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    log = (folder / "log").open("wb")
    settings = [
        "-c",
        "listen_addresses=",
        "-c",
        f"unix_socket_directories={folder}",
        "-c",
        "max_connections=40",
    ]
    process = subprocess.Popen(
        [postgres, "-D", str(data), *settings], cwd=folder, stdout=log, stderr=log, **account
    )
    try:
        made = Server(folder, user)
        wait(made, process)
        yield made
    finally:
        process.send_signal(signal.SIGQUIT)  # at once: nothing in it is worth keeping
        process.wait(DEADLINE)
        log.close()


def wait(made: Server, process: subprocess.Popen[bytes]) -> None:
    """Returns once it answers."""
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            psycopg.connect(made.url("postgres")).close()
        except psycopg.OperationalError:
            assert process.poll() is None, (made.folder / "log").read_text()
            assert time.monotonic() < deadline, (made.folder / "log").read_text()
            time.sleep(0.05)
        else:
            return
