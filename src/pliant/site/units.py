"""The systemd units of a shared machine: the server, the warden and the control group of the jobs."""

from collections.abc import Mapping
from pathlib import Path

SOCKET = """\
[Unit]
Description=Pliant: where all accounts reach the server

[Socket]
ListenStream={socket}
{console}SocketMode=0666
DirectoryMode=0755
Backlog=512

[Install]
WantedBy=sockets.target
"""

JOBS = """\
[Unit]
Description=Pliant: the control group of all jobs. Stopping this ends every job; an upgrade never restarts it.

[Service]
Type=exec
Slice=pliant.slice
Delegate=yes
OOMPolicy=continue
KillMode=control-group
TimeoutStopSec=60
ExecStart=/usr/bin/sleep infinity

[Install]
WantedBy=multi-user.target
"""

WARDEN = """\
[Unit]
Description=Pliant: starts jobs as the accounts that submitted them
Requires=pliant-jobs.service
After=pliant-jobs.service nss-user-lookup.target

[Service]
Type=exec
# Nodes of the driver are made by a program that jobs may not run as root.
ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 0
ExecStart={programs}/pliant-warden {etc}/warden.conf
KillMode=process
Restart=always
RestartSec=1
UMask=0077
LimitCORE=0
OOMScoreAdjust=-900
CapabilityBoundingSet={capabilities}
# No PrivateTmp, Protect*, PrivateDevices, SystemCallFilter, NoNewPrivileges: jobs would inherit them.

[Install]
WantedBy=multi-user.target
"""

SERVER = """\
[Unit]
Description=Pliant: shares the GPUs of this machine
Requires=pliant.socket pliant-warden.service
After=pliant.socket pliant-warden.service

[Service]
Type=notify
User={account}
ExecStart={command} serve --box --config {etc}/config.yaml
Restart=always
RestartSec=1
TimeoutStartSec=180
KillMode=mixed
UMask=0077
StateDirectory=pliant
StateDirectoryMode=0700
LimitNOFILE=65536
LimitCORE=0
OOMScoreAdjust=-500
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths={state}
ProtectHome=yes
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
DevicePolicy=closed
DeviceAllow=char-nvidia-frontend rw
DeviceAllow=char-nvidia rw
# Not ProtectProc, PrivateDevices, ProtectControlGroups: it reads which job a process on a card belongs to,
# opens the cards, and ends jobs by their control groups while no warden runs.

[Install]
WantedBy=multi-user.target
"""

CAPABILITIES = (
    "CAP_SETUID CAP_SETGID CAP_SETPCAP CAP_KILL CAP_SYS_ADMIN CAP_CHOWN CAP_SYS_RESOURCE CAP_AUDIT_WRITE "
    "CAP_SYS_PTRACE CAP_SYS_CHROOT"
)
"""The capabilities that the warden keeps; tests run it with these."""

STARTED = ("pliant-jobs.service", "pliant-warden.service", "pliant.socket", "pliant.service")
"""The units to start, in this order."""


def units(
    *, socket: Path, console: int, state: Path, programs: Path, etc: Path, command: Path, account: str
) -> Mapping[str, str]:
    """Text by file name. `console`: the port of the web pages; 0: none."""
    port = f"# The web console, and nothing else, is reached here.\nListenStream=127.0.0.1:{console}\n"
    return {
        "pliant.socket": SOCKET.format(socket=socket, console=port if console else ""),
        "pliant-jobs.service": JOBS,
        "pliant-warden.service": WARDEN.format(programs=programs, etc=etc, capabilities=CAPABILITIES),
        "pliant.service": SERVER.format(account=account, command=command, etc=etc, state=state),
    }
