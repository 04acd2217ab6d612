"""What the server is told on its command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pliant.control.lease import LEASE
from pliant.shared import SharedBox
from pliant.store.errors import StoreError
from pliant.store.recovery import ADOPT, END, REFUSE


@dataclass(frozen=True, slots=True)
class Options:
    state: Path
    simulate: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    take_over: bool = False
    standby: bool = False
    database: str | None = None  # of PostgreSQL; None: what the folder says
    lease: float = LEASE  # seconds
    unknown: str = REFUSE  # what to do with tasks that live and are not in the store
    box: SharedBox | None = None  # None: it serves the account that runs it

    @classmethod
    def of(cls, given: argparse.Namespace) -> "Options":
        """Of what `parsed` returned for `serve`. Raises StoreError."""
        box = SharedBox.read(given.socket, given.warden) if given.box else None
        if box is not None and (given.standby or given.database):
            raise StoreError("A server with --box keeps its state in its folder: leave --database out.")
        return cls(
            given.state.absolute(),
            tuple(given.simulate),
            given.host,
            given.port,
            given.take_over,
            given.standby,
            given.database,
            given.lease,
            given.unknown,
            box,
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
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--take-over", action="store_true")
    serve.add_argument("--standby", action="store_true")
    serve.add_argument("--database")
    serve.add_argument("--lease", type=float, default=LEASE)
    serve.add_argument("--unknown", choices=(REFUSE, ADOPT, END), default=REFUSE)
    serve.add_argument("--box", action="store_true", help="accounts of this machine share the server")
    serve.add_argument("--socket", type=Path, default=Path("/run/pliant/pliant.sock"))
    serve.add_argument("--warden", type=Path, default=Path("/etc/pliant/warden.conf"))
    look = verbs.add_parser("doctor")
    look.add_argument("--state", type=Path, required=True)
    return parser.parse_args(argv)
