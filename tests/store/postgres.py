"""Runs a private PostgreSQL, from Debian's package, on a socket in a temporary folder."""

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
DEADLINE = 200  # seconds for the server to answer, or to end


class Server:
    """Provides empty places for a store: schemas of one database, which are created faster than databases."""

    def __init__(self, folder: Path, user: str, account: dict[str, object], port: int = 0) -> None:
        """With a port it also listens at 127.0.0.1."""
        self.folder, self.user, self.count, self.port = folder, user, 0, port
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers."""
        settings = [f"listen_addresses={'127.0.0.1' if self.port else ''}", f"port={self.port or 5432}"]
        settings += [f"unix_socket_directories={self.folder}", "max_connections=40"]
        words = [word for setting in settings for word in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program("postgres"), "-D", str(self.folder / "data"), *words],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self._account,
            )
        wait(self, self._process)

    def stop(self, how: signal.Signals) -> None:
        """SIGQUIT stops it at once; SIGINT closes connections and keeps what was committed."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(DEADLINE)
            self._process = None

    def url(self, database: str) -> str:
        port = f"&port={self.port}" if self.port else ""
        return f"postgresql://{self.user}@/{database}?host={self.folder}{port}"

    def place(self) -> str:
        """The URL of an empty schema."""
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
def server(folder: Path, port: int = 0) -> Iterator[Server]:
    """Runs a server, under root as the package's account, because PostgreSQL refuses to run as root."""
    initdb = program("initdb")
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
    made = Server(folder, user, account, port)
    try:
        made.start()
        yield made
    finally:
        made.stop(signal.SIGQUIT)  # nothing in it is worth keeping


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
