"""The state of one invocation: its global options, its server and its project."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pliant.client.config import Config
from pliant.client.errors import BadRequest, NotFound, PliantError, Unauthorized
from pliant.client.locate import UNIX, Endpoint, locate

if TYPE_CHECKING:
    from pliant.client.client import Client


class Session:
    """One run of the command line. It reads files and connects only on first use."""

    def __init__(self) -> None:
        self.server: str | None = None
        self.state: str | None = None
        self.project: str | None = None  # value of -p/--project
        self.quiet = False
        self.debug = False
        self.output = "table"  # table | wide | json | yaml | name
        self.headers = True
        self.kind: str | None = None  # kind of the group: Training | Workspace ...; None: any
        self.also: str | None = None  # a second kind that the group shows
        self.framework: str | None = None  # framework of the group, for distributed workloads
        self.noun = "job"  # what the group calls a workload
        self.group = "job"  # the group's words on the command line
        self.failure_code: int | None = None  # exit code of every failure of Pliant; None: by its kind
        self._config: Config | None = None
        self._endpoint: Endpoint | None = None
        self._client: Client | None = None

    @property
    def program(self) -> str:
        """`runai` if that was typed; else `pliant`, also for the other programs."""
        name = click.get_current_context().find_root().info_name
        return "runai" if name == "runai" else "pliant"

    @property
    def config(self) -> Config:
        if self._config is None:
            self._config = Config()
        return self._config

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            self._endpoint = locate(self.server, self.state, config=self.config)
        return self._endpoint

    @property
    def user(self) -> str:
        """The submitter, for the USER column; for a server at a unix: address it is the account."""
        return account() if self.endpoint.url.startswith(UNIX) else user()

    @property
    def client(self) -> Client:
        if self._client is None:
            endpoint = self.endpoint
            self._client = client_for(endpoint.url, endpoint.token, endpoint.socket, endpoint.authority)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            if self._client.trouble:
                self.note(f"Note: {self._client.trouble}")
            self._client.close()

    def note(self, text: str) -> None:
        """Print one line on standard error, unless --quiet is given."""
        if not self.quiet:
            click.echo(text, err=True)

    def confirm(self, question: str) -> None:
        """Ask on the terminal. Raises PliantError if the answer is no."""
        if not click.confirm(question, err=True):
            raise PliantError("Cancelled: nothing was changed.")

    @property
    def asked_kind(self) -> str | None:
        """The kind to request from the server; None: several kinds, or any."""
        return None if self.also else self.kind

    def shows(self, item: Any) -> bool:
        """True if a workload belongs to this group of commands."""
        if self.framework is not None and item.get("distributedFramework") != self.framework:
            return False
        return self.kind is None or item["type"] in (self.kind, self.also)

    @property
    def named_project(self) -> str | None:
        """The project that was named by -p, PLIANT_PROJECT or `project set`; None if none was."""
        said = self.project or os.environ.get("PLIANT_PROJECT")
        return said or self.config.project(self.endpoint.key)

    @property
    def current_project(self) -> str:
        """The project to work in; `default` if none was named."""
        return self.named_project or "default"

    def missing_project(self) -> BadRequest | NotFound:
        """The error to raise when the server does not know `current_project`."""
        names = ", ".join(sorted(unit["name"] for unit in self.client.projects()))
        there_are = (
            f"There are: {names}."
            if names
            else f"Create one: `{self.program} project create NAME --quota N`."
        )
        if self.named_project is None:
            return BadRequest(
                "No project is set.", f"Choose one with `{self.program} project set NAME`. {there_are}"
            )
        return NotFound(f"Project {self.current_project} does not exist.", there_are)

    def check_project(self) -> None:
        """Raise if the current project does not exist; called when something was not found in it.

        Does not raise for a user who may not read projects: such a user can still have jobs in one.
        """
        try:
            try:
                self.client.project(self.current_project)
            except NotFound:
                raise self.missing_project() from None
        except Unauthorized as error:
            if error.status != 403:
                raise

    def find(self, name: str) -> Any:
        """The workload of that name or number in the current project and of this group's kind.

        `@` is the newest one of this user. Raises NotFound; BadRequest for an array.
        """
        found = self.find_all(name)
        if len(found) > 1 or (found[0]["name"] != name and (found[0].get("array") or {}).get("name") == name):
            raise BadRequest(
                f"{name} is an array of {len(found)} jobs.",
                f"Name one of them, for example {found[0]['name']}.",
            )
        return found[0]

    def find_task(self, name: str, task: str | None = None) -> tuple[Any, str | None]:
        """The workload of that name and its task to use; `name` may also name a task. Raises NotFound."""
        try:
            return self.find(name), task
        except NotFound:
            pod = bare(name)
            candidates = [
                it for it in self._candidates("@", self.current_project) if pod.startswith(it["name"])
            ]
            for item in sorted(candidates, key=lambda it: -len(it["name"])):
                if any(entry["name"] == pod for entry in self.client.pods(item["id"])):
                    return item, task or pod
            raise

    def find_all(self, name: str) -> list[Any]:
        """Like `find`; the name of an array gives all of its jobs."""
        project, name = self.current_project, bare(name)
        try:
            return matching(name, self._candidates(name, project), self.user)
        except NotFound:
            self.check_project()
            what = self.noun.capitalize()
            raise NotFound(
                f"{what} {name} does not exist in project {project}.",
                "Use -p PROJECT for a job in another project.",
            ) from None

    def _candidates(self, name: str, project: str) -> list[Any]:
        """The workloads of the project to search for `name`, with one request if that suffices."""
        if name != "@" and not name.isdecimal():
            found = list(self.client.workloads(project, name=name, kind=self.asked_kind))
            if found:
                return [it for it in found if self.shows(it)]
        return [it for it in self.client.workloads(project, kind=self.asked_kind) if self.shows(it)]


_KINDS = re.compile(
    r"(jobs?|pods?|po|workloads?|trainings?|workspaces?|inferences?|deploy(ment)?s?|svc|services?)/"
)


def bare(name: str) -> str:
    """NAME without a kind before it: kubectl writes `job/NAME`, and no name contains a slash."""
    return _KINDS.sub("", name, count=1) if "/" in name else name


def matching(name: str, items: Sequence[Any], me: str) -> list[Any]:
    """The items that a name, a number or `@` selects, at least one. Raises NotFound.

    `@` is the newest of user `me`. An item that is being deleted is found only if no other has its name.
    """
    name = bare(name)
    living = [it for it in items if it.get("desiredPhase") != "Deleted"]
    if name == "@":
        own = [it for it in living if it["submittedBy"] == me]
        found = [max(own, key=lambda it: it["number"])] if own else []
    elif name.isdecimal():
        found = [it for it in living if it["number"] == int(name)]
    else:
        found = [it for it in (*living, *items) if it["name"] == name][:1]
        found = found or [it for it in living if (it.get("array") or {}).get("name") == name]
    if not found:
        raise NotFound(name)
    return found


def user() -> str:
    """The user of this terminal: LOGNAME, else USER, else the account."""
    return os.environ.get("LOGNAME") or os.environ.get("USER") or account()


def account() -> str:
    """The name of the account that this process runs as; its number if it has no name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def client_for(
    url: str, token: str | None, socket: str | None = None, authority: str | None = None
) -> Client:
    """A Client; it imports TLS, which takes time, only if the address needs it."""
    plain = (socket is not None or not url.startswith("https:")) and "ssl" not in sys.modules
    if plain:
        sys.modules["ssl"] = None  # type: ignore[assignment]  # http.client takes this for a missing ssl
    try:
        from pliant.client.client import Client
    finally:
        if plain:
            del sys.modules["ssl"]
    return Client(url, token, socket=socket, authority=authority)


def pass_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the Session to the command as its first argument."""
    return click.make_pass_decorator(Session, ensure=True)(function)
