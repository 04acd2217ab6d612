"""ssh-config and ssh-proxy: an OpenSSH server inside a job, for VS Code Remote-SSH, scp, sftp and rsync."""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from pathlib import Path

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.streams.execute import NO_CONNECTION, run_inside

_INSIDE = r"""
PATH="$PATH:/usr/sbin:/sbin"
server=$(command -v sshd) || {
    echo "pliant: no sshd in the job's PATH: install the OpenSSH server" >&2
    exit 127
}
umask 077
own="$PLIANT_JOB_DIR/.ssh"
mkdir -p "$own" || exit 126
if [ ! -e "$own/host_key" ]; then
    ssh-keygen -q -t ed25519 -N '' -C pliant -f "$own/new.$$" </dev/null >/dev/null || exit 126
    ln "$own/new.$$" "$own/host_key" 2>/dev/null
    rm -f "$own/new.$$" "$own/new.$$.pub"
fi
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
exec 2>>"$own/log"
kept=
own_names=$(env | grep -o '^\(PLIANT\|CUDA\|NVIDIA\)_[A-Z_]*')
for name in PATH VIRTUAL_ENV CONDA_PREFIX LD_PRELOAD LD_LIBRARY_PATH $own_names; do
    eval "value=\${$name-}"
    case $value in *[\"\ \\]*) ;; ?*) kept="$kept $name=$value" ;; esac
done
exec "$server" -i -e -f /dev/null -o HostKey="$own/host_key" -o AuthorizedKeysFile=.ssh/authorized_keys \
    -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o PidFile=none \
    -o Subsystem='sftp internal-sftp' -o SetEnv="${kept# }"
"""
"""The script that runs in the job: sshd -i with the job's own host key. A login gets the variables that
select the job's devices, limits and programs, and those by which all its processes are found at its end."""


def _files() -> tuple[Path, Path]:
    """Paths of (this account's authorized keys, the known hosts of jobs)."""
    folder = Path.home() / ".ssh"
    return folder / "authorized_keys", folder / "known_hosts.pliant"


@click.command(
    "ssh-config", cls=Command, short_help="Print an entry for ~/.ssh/config that leads into a job."
)
@click.argument("name", shell_complete=workload_names)
@click.option("--user", metavar="ACCOUNT", help="Account the job runs as (default: this one).")
@project_option
@pass_session
def ssh_config(session: Session, name: str, user: str | None) -> None:
    """Print an entry for ~/.ssh/config with which `ssh NAME.pliant`, scp, rsync and VS Code Remote-SSH work.

    The job needs sshd (the OpenSSH server) in its PATH; it accepts the keys in ~/.ssh/authorized_keys.
    """
    item = session.find(name)
    keys, hosts = _files()
    words = [_program(session), *_server(session), "ssh-proxy", name, "-p", item["projectName"]]
    lines = {
        "User": user or getpass.getuser(),
        "ProxyCommand": shlex.join(words).replace("%", "%%"),
        "HostKeyAlias": f"{item['id']}.pliant",
        "UserKnownHostsFile": str(hosts).replace("%", "%%"),
        "StrictHostKeyChecking": "accept-new",
    }
    click.echo(f"Host {name}.pliant")
    for key, value in lines.items():
        click.echo(f"  {key} {value}")
    session.note(f"Append it to ~/.ssh/config, then type: ssh {name}.pliant")
    if not keys.exists():
        session.note(f"{keys} does not exist: add your public key, e.g. cat ~/.ssh/id_ed25519.pub >> {keys}")


@click.command(
    "ssh-proxy", cls=Command, short_help="Connect OpenSSH to a job: the ProxyCommand of ssh-config."
)
@click.argument("name", shell_complete=workload_names)
@project_option
@pass_session
def ssh_proxy(session: Session, name: str) -> int:
    """Run an OpenSSH server inside a job on standard input and output; ssh runs this as its ProxyCommand."""
    session.failure_code = NO_CONNECTION
    if sys.stdin.isatty():
        raise click.UsageError(f"ssh-proxy is for ssh; for a shell type: {session.program} ssh {name}.")
    return run_inside(session, name, ["/bin/sh", "-c", _INSIDE], stdin=True, tty=False, pod=None)


def _program(session: Session) -> str:
    """The absolute path of this program, as ssh runs it with another directory and PATH; else its name."""
    beside = Path(sys.argv[0]).resolve()
    return str(beside) if os.access(beside, os.X_OK) and beside.is_file() else session.program


def _server(session: Session) -> list[str]:
    """The options by which another shell finds this server."""
    url = session.server or os.environ.get("PLIANT_SERVER")
    state = session.state or os.environ.get("PLIANT_STATE")
    return ["--server", url] if url else ["--state", os.path.abspath(state)] if state else []
