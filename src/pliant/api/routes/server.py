"""Routes of the server itself: health, the caller's identity, tokens, metrics, the operator's actions."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from pliant.api.context import Here
from pliant.api.errors import problem
from pliant.api.guard import OPEN, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import PASSWORD
from pliant.api.identity.signin import GRANTS, sign_in
from pliant.api.late import Router
from pliant.api.requests.credentials import credentials
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received
from pliant.control.errors import BadRequest, Conflict, Unavailable
from pliant.wire.proof import LEAST, MOST, PATH
from pliant.wire.server import (
    BackupDone,
    BackupRequest,
    Doctor,
    Health,
    OAuthTokens,
    ProofItem,
    ServerItem,
    ShutdownRequest,
    TokenRequest,
    Tokens,
    VersionItem,
    Whoami,
)

API = "v1"

public = Router(tags=["server"])
router = Router(prefix="/api/v1", tags=["server"])

_FIELDS = tuple(get_type_hints(TokenRequest))


@public.get("/healthz", dependencies=[needs(OPEN)], **answers(200, Health))
async def healthz(here: Here) -> Response:
    """It answers; `degraded` while nothing can be scheduled."""
    trouble = here.service.trouble
    return answer({"status": "degraded", "detail": trouble} if trouble else {"status": "ok"})


@public.get("/readyz", dependencies=[needs(OPEN)], **answers(200, Health))
async def readyz(here: Here) -> Response:
    """It has a world and can work."""
    if here.service.board.version == 0:
        return problem(503, "The server is still starting.", "Try again.", headers={"Retry-After": "1"})
    return answer({"status": "ok"})


@public.get("/version", dependencies=[needs(OPEN)], **answers(200, VersionItem))
async def version(here: Here) -> Response:
    return answer({"version": here.server.version, "api": API})


Nonce = Annotated[
    str, Query(min_length=LEAST, max_length=MOST, json_schema_extra={"pattern": "^[A-Za-z0-9]*$"})
]


@public.get(PATH, dependencies=[needs(OPEN)], **answers(200, ProofItem))
async def proof(request: Request, here: Here, nonce: Nonce, token: str) -> Response:
    """That this server knows a token, for a client that has not sent it yet.

    `token` is all before the token's last `.` or `:`, or else the first 16 digits of its SHA-256. The answer
    is the HMAC-SHA256 of `pliant proof NONCE HOST PORT`, its key the SHA-256 of the token; HOST and PORT are
    this server's end of the connection.
    """
    host, port = request.scope["server"] or ("", 0)
    return answer({"proof": here.authority.proof(token, nonce, (host, port))})


@public.get("/metrics", dependencies=[needs(OPEN)], response_class=Response)
def metrics(here: Here) -> Response:
    """For Prometheus; free for anybody on the server's own machine."""
    from pliant.api.responses.metrics import CONTENT_TYPE, scrape  # most servers are never asked for metrics

    text = scrape(here.service.board, here.server.version, here.service.uses())
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


def _token_body(required: str, names: Iterable[str], grants: Iterable[str]) -> dict[str, Any]:
    """The body in both forms, JSON and form, for OpenAPI."""

    def taken(more: Iterable[str] = ()) -> dict[str, Any]:
        fields: dict[str, Any] = {
            name: {"type": "string", "pattern": r"^[^\x00]*$"} for name in (*names, *more)
        }
        fields[required] = {"type": "string", "enum": [*grants, "refresh_token"]}
        return {"type": "object", "required": [required], "properties": fields, "additionalProperties": False}

    content = {
        "application/json": {"schema": taken()},
        "application/x-www-form-urlencoded": {"schema": taken(["scope"])},
    }
    return {"requestBody": {"required": True, "content": content}}


@public.post(
    "/api/v1/token",
    dependencies=[needs(OPEN)],
    openapi_extra=_token_body("grantType", _FIELDS, GRANTS),
    **answers(200, Tokens),
)
async def token(request: Request, here: Here) -> Response:
    """An access token for an hour: by a user's password, or by the id and secret of an application or a key.

    The server's own token is good as the secret or password of every grant.

    Case and underscores in the names of fields do not matter.
    """
    issued = await run_in_threadpool(sign_in, here, request, credentials(await request.body()))
    return answer({"accessToken": issued.access, "refreshToken": issued.refresh, "expiresIn": issued.life})


_OAUTH_GRANTS = ("client_credentials", "password")
_OAUTH = _token_body(
    "grant_type",
    ("grant_type", "client_id", "client_secret", "username", "password", "refresh_token"),
    _OAUTH_GRANTS,
)


@public.post("/api/v2/token", dependencies=[needs(OPEN)], openapi_extra=_OAUTH, **answers(200, OAuthTokens))
async def token_by_form(request: Request, here: Here) -> Response:
    """The same with OAuth 2's names."""
    fields = credentials(await request.body())
    issued = await run_in_threadpool(sign_in, here, request, fields, _OAUTH_GRANTS)
    return answer(
        {
            "access_token": issued.access,
            "token_type": "Bearer",
            "expires_in": issued.life,
            "refresh_token": issued.refresh,
        }
    )


@public.post(
    "/auth/realms/{realm}/protocol/openid-connect/token",
    dependencies=[needs(OPEN)],
    openapi_extra=_OAUTH,
    **answers(200, OAuthTokens),
)
async def token_of_a_realm(realm: str, request: Request, here: Here) -> Response:
    """The same under the address that older documents name; any realm will do."""
    return await token_by_form(request, here)


@router.get("/whoami", dependencies=[needs("self:read")], **answers(200, Whoami))
def whoami(caller: Caller, here: Here) -> Response:
    rules = [
        {
            "role": here.service.board.access.role_name(grant.role),
            "scopeType": grant.scope.kind,
            "scopeId": grant.scope.project or grant.scope.department,
        }
        for grant in caller.grants
    ]
    account = caller.account.name if caller.account is not None else None
    told = {"user": here.authority.address(caller.user), "id": caller.user, "subject": caller.subject}
    must_change = caller.only == PASSWORD
    return answer({**told, "account": account, "roles": rules, "mustChangePassword": must_change})


@router.get("/server", dependencies=[needs("server:read")], **answers(200, ServerItem))
def server(here: Here) -> Response:
    info, board = here.server, here.service.board
    running = sum(task.phase.live for view in board.workloads.values() for task in view.tasks)
    return answer(
        {
            "url": info.url,
            "version": info.version,
            "pid": info.pid,
            "started": stamp(info.started),
            "state": info.state,
            "epoch": info.epoch,
            "role": info.role,
            "standby": info.standby(),
            "simulated": info.simulated,
            "cycles": board.cycles,
            "uptime": max(0, here.service.now() - info.started) / 1000,
            "tasksRunning": running,
        }
    )


@router.get("/server/doctor", dependencies=[needs("server:read")], **answers(200, Doctor))
def doctor(here: Here) -> Response:
    """What of shares of GPUs is enforced here, and whether the login provider can be used, with reasons."""
    found = [*here.server.findings(), *([here.logins.relying.finding()] if here.logins is not None else [])]
    return answer({"findings": [{"what": one.what, "holds": one.holds, "text": one.text} for one in found]})


@router.post("/server/shutdown", dependencies=[needs("server:operate")], **answers(202, Health))
def shutdown(body: Received[ShutdownRequest], here: Here) -> Response:
    """End the server. Tasks go on running unless `stopTasks` says otherwise."""
    here.shutdown(body.get("stopTasks", False))
    return answer({"status": "stopping"}, 202)


@router.post("/server/backup", dependencies=[needs("server:operate")], **answers(200, BackupDone))
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


@router.post("/server/token", dependencies=[needs("server:operate")], status_code=204, response_model=None)
def renew_token(here: Here) -> Response:
    """Put another token into the state folder. The old one, and what was issued for it, counts no more."""
    if here.renew is None:
        raise Conflict("This server has no token of its own.", "The socket says who asks.")
    try:
        here.renew()
    except OSError as error:
        raise Unavailable(
            f"No token could be written: {error.strerror}.", "The old one still counts. Free some space."
        ) from error
    return empty()


Redact = Annotated[bool, Query(description="Numbers instead of names; no log and no histories.")]


@router.get(
    "/server/debug-bundle",
    dependencies=[needs("server:operate")],
    response_class=Response,
    responses={200: {"content": {"application/zip": {}}}},
)
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
