"""The server's command line options."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pliant.api.pace import NO_BOUNDS, Bounds
from pliant.control.lease import LEASE
from pliant.devices.strays import REPORT, STOP
from pliant.engines.kube.make import OWN
from pliant.shared import SharedBox
from pliant.store.errors import StoreError
from pliant.store.recovery import ADOPT, END, REFUSE


@dataclass(frozen=True, slots=True)
class Options:
    state: Path
    simulate: tuple[str, ...] = ()
    kubeconfig: Path | None = None  # of the cluster to schedule on; None: as the last server
    scheduler: str | None = None  # the scheduler name of pods for this server; None: as the last server
    images: tuple[str, ...] = ()  # NAME=IMAGE: what the cluster pulls for NAME; empty: as the last server
    share_image: str | None = None  # Pliant's image, for GPU fractions on a cluster; None: as the last server
    host: str = "127.0.0.1"
    port: int = 0
    take_over: bool = False
    standby: bool = False
    replica: bool = False  # one of several servers over one database, each on its own machine
    database: str | None = None  # PostgreSQL address; None: as recorded in the folder
    lease: float = LEASE  # seconds
    unknown: str = REFUSE  # what to do with live tasks that are not in the store
    box: SharedBox | None = None  # None: it serves only the account that runs it
    console: int = 0  # of a box: port at 127.0.0.1 for the web pages only; 0: none
    connections: int = 0  # most connections of one account at a time; 0: no limit
    bounds: Bounds = NO_BOUNDS
    openid: str | None = None  # settings of an OpenID Connect provider, or `none`; None: as the last server
    pending: int = 0  # most pending jobs of one account, set in a new state folder; 0: no limit
    end_strays: bool = False  # end processes that use GPUs outside of any job; else only report them
    tls: bool | None = None  # None: as the last server of this folder
    given: Sequence[Path] | None = None  # certificate chain and key; None: as before, or the server's own

    @classmethod
    def of(cls, given: argparse.Namespace) -> "Options":
        """Options from the result of `parsed` for `serve`. Raises StoreError."""
        box = SharedBox.read(given.socket, given.warden) if given.box else None
        if box is not None and (given.standby or given.database):
            raise StoreError("A server with --box keeps its state in its folder: leave --database out.")
        if given.replica and not given.database:
            raise StoreError("A server with --replica shares a database: give --database postgresql://...")
        if box is not None and (given.tls or given.certificate):
            raise StoreError("A server with --box answers at its socket alone: leave --tls and --cert out.")
        return cls(
            state=given.state.absolute(),
            simulate=tuple(given.simulate),
            kubeconfig=Path(OWN) if given.in_cluster else given.kubeconfig and given.kubeconfig.absolute(),
            scheduler=given.scheduler_name,
            images=tuple(given.image),
            share_image=given.share_image,
            host=given.host,
            port=given.port,
            take_over=given.take_over,
            standby=given.standby or given.replica,
            replica=given.replica,
            database=given.database,
            lease=given.lease,
            unknown=given.unknown,
            box=box,
            console=given.console,
            connections=given.connections,
            openid=given.openid,
            bounds=Bounds(**{field.name: getattr(given, field.name) for field in fields(Bounds)}),
            pending=given.pending,
            end_strays=given.strays == STOP,
            tls=given.tls,
            given=given.certificate,
        )


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pliant.app")
    verbs = parser.add_subparsers(dest="verb", required=True)
    back = verbs.add_parser("restore")
    back.add_argument("--state", type=Path, required=True)
    back.add_argument("--check", action="store_true", help="restore nothing; tell what runs")
    back.add_argument("file", type=Path)
    serve = verbs.add_parser("serve")
    serve.add_argument("--state", type=Path, required=True)
    serve.add_argument("--simulate", action="append", default=[])
    serve.add_argument("--kubeconfig", type=Path, help="share the GPUs of that Kubernetes cluster")
    serve.add_argument(
        "--in-cluster", action="store_true", help="share the GPUs of the cluster it is a pod of"
    )
    serve.add_argument("--scheduler-name", help="take in pods that name this as their scheduler")
    serve.add_argument(
        "--image", action="append", default=[], help="NAME=IMAGE: what a cluster pulls for NAME"
    )
    serve.add_argument("--share-image", help="image of Pliant, for pods with parts of GPUs")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--take-over", action="store_true")
    serve.add_argument("--standby", action="store_true")
    serve.add_argument("--replica", action="store_true", help="one of several servers over one database")
    serve.add_argument("--database")
    serve.add_argument("--lease", type=float, default=LEASE)
    serve.add_argument("--tls", action=argparse.BooleanOptionalAction)
    serve.add_argument("--certificate", type=Path, nargs=2, metavar=("CHAIN", "KEY"))
    serve.add_argument("--unknown", choices=(REFUSE, ADOPT, END), default=REFUSE)
    serve.add_argument("--box", action="store_true", help="accounts of this machine share the server")
    serve.add_argument("--socket", type=Path, default=Path("/run/pliant/pliant.sock"))
    serve.add_argument("--console", type=int, default=0, help="port of 127.0.0.1 for the web pages; 0: none")
    serve.add_argument("--openid", help="settings of an OpenID Connect provider; none: no provider any more")
    serve.add_argument("--connections", type=int, default=0, help="of one account at a time; 0: no limit")
    for name in ("pending", *(field.name for field in fields(Bounds))):
        serve.add_argument(f"--{name}", type=int, default=0, help="of one account; 0: no limit")
    serve.add_argument("--strays", choices=(REPORT, STOP), default=REPORT)
    serve.add_argument("--warden", type=Path, default=Path("/etc/pliant/warden.conf"))
    look = verbs.add_parser("doctor")
    look.add_argument("--state", type=Path, required=True)
    look.add_argument("--kube", action="store_true", help="of a cluster, not of this machine")
    look.add_argument("--kubeconfig", type=Path)
    look.add_argument("--openid", type=Path, help="a login provider's settings and nothing else")
    return parser.parse_args(argv)
