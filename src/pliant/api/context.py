"""What every route may use: the service, what this server says of itself, what only its process can do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from pliant.api.auth import Authority
from pliant.api.responses.workloads import Renderer
from pliant.api.streaming.pulse import Pulse
from pliant.api.streaming.sessions import Sessions
from pliant.control.fractions import Finding
from pliant.control.service import Service


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself."""

    url: str
    version: str
    pid: int
    started: int  # ms since the epoch
    state: str  # path of its state folder
    epoch: int  # of its leadership
    simulated: bool
    notice: str = ""  # what it told whoever started it
    findings: Callable[[], Sequence[Finding]] = tuple  # what of shares of GPUs holds here; may take seconds


@dataclass(frozen=True, slots=True)
class Context:
    service: Service
    authority: Authority
    server: ServerInfo
    sessions: Sessions
    pulse: Pulse
    shutdown: Callable[[bool], None]  # True: stop all tasks first
    backup: Callable[[Path], None]
    bundle: Callable[[], bytes]  # a zip
    closing: Callable[[], bool]  # the server is about to end, so streams end

    def renderer(self) -> Renderer:
        return Renderer(self.service.board, self.service.now(), self.service.uses())


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(_context)]
