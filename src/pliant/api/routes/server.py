"""The server itself: health, who one is, tokens, metrics, and what only its operator does."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request, Response

from pliant.api.auth import Caller, Issued
from pliant.api.context import Context, Here
from pliant.api.errors import Unauthorized, problem
from pliant.api.models import Received
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.times import stamp
from pliant.control.errors import BadRequest, Conflict, Unavailable
from pliant.model.workload import TaskPhase
from pliant.wire.server import (
    BackupDone,
    BackupRequest,
    Doctor,
    Health,
    OAuthTokens,
    ServerItem,
    ShutdownRequest,
    TokenRequest,
    Tokens,
    VersionItem,
    Whoami,
)

API = "v1"

public = APIRouter(tags=["server"])
router = APIRouter(prefix="/api/v1", tags=["server"])

_GRANTS = {
    "client_credentials": ("clientID", "clientSecret"),
    "app_token": ("appID", "appSecret"),
    "password": ("username", "password"),
}
"""Grant -> the fields that carry the name and the token."""

_UNSAID = dict.fromkeys(get_type_hints(TokenRequest), "")


@public.get("/healthz", **answers(200, Health))
async def healthz(here: Here) -> Response:
    """It answers; `degraded` while nothing can be scheduled."""
    trouble = here.service.trouble
    return answer({"status": "degraded", "detail": trouble} if trouble else {"status": "ok"})


@public.get("/readyz", **answers(200, Health))
async def readyz(here: Here) -> Response:
    """It has a world and can work."""
    if here.service.board.version == 0:
        return problem(503, "The server is still starting.", "Try again.", headers={"Retry-After": "1"})
    return answer({"status": "ok"})


@public.get("/version", **answers(200, VersionItem))
async def version(here: Here) -> Response:
    return answer({"version": here.server.version, "api": API})


@public.get("/metrics", response_class=Response)
def metrics(here: Here) -> Response:
    """For Prometheus; free for anybody on the server's own machine."""
    from pliant.api.responses.metrics import CONTENT_TYPE, scrape  # most servers are never asked

    text = scrape(here.service.board, here.server.version, here.service.uses())
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


@public.post("/api/v1/token", **answers(200, Tokens))
def token(body: Received[TokenRequest], here: Here) -> Response:
    """An access token for 24 hours. The secret or password of every grant is the server's own token."""
    issued = _issued(here, body["grantType"], {**_UNSAID, **body})
    return answer({"accessToken": issued.access, "refreshToken": issued.refresh, "expiresIn": issued.life})


_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "required": ["grant_type"],
                    "properties": {
                        name: {"type": "string"}
                        for name in (
                            "grant_type",
                            "client_id",
                            "client_secret",
                            "username",
                            "password",
                            "refresh_token",
                        )
                    },
                }
            }
        },
    }
}


@public.post("/api/v2/token", openapi_extra=_FORM, **answers(200, OAuthTokens))
async def token_by_form(request: Request, here: Here) -> Response:
    """The same with OAuth2's names, as a form."""
    try:
        form = {name: values[-1] for name, values in parse_qs((await request.body()).decode()).items()}
    except ValueError as error:
        raise BadRequest("The body is not a form.", "Send application/x-www-form-urlencoded.") from error
    fields = {
        "clientID": form.get("client_id", ""),
        "clientSecret": form.get("client_secret", ""),
        "username": form.get("username", ""),
        "password": form.get("password", ""),
        "refreshToken": form.get("refresh_token", ""),
    }
    issued = _issued(here, form.get("grant_type", ""), fields)
    return answer(
        {
            "access_token": issued.access,
            "token_type": "Bearer",
            "expires_in": issued.life,
            "refresh_token": issued.refresh,
        }
    )


def _issued(here: Context, grant: str, fields: dict[str, Any]) -> Issued:
    if grant == "refresh_token":
        return here.authority.refresh(fields["refreshToken"])
    if grant not in _GRANTS or _GRANTS[grant][0] not in fields:
        raise BadRequest(
            f"There is no grant {grant[:40]!r}.", f"Use one of {', '.join(_GRANTS)}, refresh_token."
        )
    name, secret = _GRANTS[grant]
    if not here.authority.knows(fields[secret]):
        raise Unauthorized(
            "The secret is not valid.", "It is the content of the file `token` in the state folder."
        )
    return here.authority.issue(fields[name] or here.authority.owner)


@router.get("/whoami", **answers(200, Whoami))
def whoami(caller: Caller, here: Here) -> Response:
    return answer({"user": here.authority.address(caller.user), "id": caller.user})


@router.get("/server", **answers(200, ServerItem))
def server(here: Here) -> Response:
    info, board = here.server, here.service.board
    running = sum(
        task.phase in (TaskPhase.ORDERED, TaskPhase.RUNNING, TaskPhase.STOPPING)
        for view in board.workloads.values()
        for task in view.tasks
    )
    return answer(
        {
            "url": info.url,
            "version": info.version,
            "pid": info.pid,
            "started": stamp(info.started),
            "state": info.state,
            "epoch": info.epoch,
            "simulated": info.simulated,
            "cycles": board.cycles,
            "uptime": max(0, here.service.now() - info.started) / 1000,
            "tasksRunning": running,
        }
    )


@router.get("/server/doctor", **answers(200, Doctor))
def doctor(here: Here) -> Response:
    """What of shares of GPUs is enforced here and what is not, each with the reason."""
    found = here.server.findings()
    return answer({"findings": [{"what": one.what, "holds": one.holds, "text": one.text} for one in found]})


@router.post("/server/shutdown", **answers(202, Health))
def shutdown(body: Received[ShutdownRequest], here: Here) -> Response:
    """End the server. Tasks go on running unless `stopTasks` says otherwise."""
    here.shutdown(body.get("stopTasks", False))
    return answer({"status": "stopping"}, 202)


@router.post("/server/backup", **answers(200, BackupDone))
def backup(body: Received[BackupRequest], here: Here) -> Response:
    """Write a consistent copy of the store to an absolute path on the server's machine."""
    target = Path(body["path"])
    if not target.is_absolute():
        raise BadRequest(
            f"{body['path']!r} is not an absolute path.", "The server has a folder of its own; begin with /."
        )
    if target.exists():
        raise Conflict(f"{target} exists.", "Choose another path, or remove it first.")
    here.backup(target)
    return answer({"path": str(target)})


Redact = Annotated[bool, Query(description="Numbers instead of names; no log and no histories.")]


@router.get("/server/debug-bundle", response_class=Response)
def debug_bundle(here: Here, redact: Redact = False) -> Response:
    """A zip with what somebody needs who looks into a problem from afar; no tokens in it."""
    headers = {"Content-Disposition": 'attachment; filename="pliant-debug.zip"'}
    bundle = here.bundle()
    if redact:  # in a process of its own: all recorded cycles are decided again under other names
        words = [sys.executable, "-m", "pliant.store.redact"]
        done = subprocess.run(words, input=bundle, capture_output=True, check=False)
        if done.returncode:
            raise Unavailable(
                "The names could not be taken out.", done.stderr.decode(errors="replace")[-300:]
            )
        bundle = done.stdout
    return Response(bundle, headers=headers, media_type="application/zip")
