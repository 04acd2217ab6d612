"""The frame of every page: navigation, the reader, error messages, and updates as things change."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import background_tasks, ui
from nicegui.elements.mixins.text_element import TextElement

from pliant.console.calls import Calls, Refusal
from pliant.console.design import ICON
from pliant.console.rights import Rights, rights_of

GAP = 0.7
"""The least seconds between two refreshes of a page, however often something changes."""

SETTLED = 0.15
"""Seconds between a change and the refresh: the decision about a submission follows it at once."""

LONGEST = 15.0
"""Seconds after which a page refreshes though nothing has changed: ages grow."""

PATIENCE = 60.0
"""Seconds that a page may take on a busy server before its reader gets an error."""

PLACES: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("", (("Overview", "overview", "clusters:read"),)),
    (
        "Workload manager",
        (
            ("Workloads", "workloads", "workloads:read"),
            ("Templates", "templates", "assets:read"),
            ("Environments", "environments", "assets:read"),
            ("Compute resources", "compute-resources", "assets:read"),
        ),
    ),
    (
        "Resources",
        (
            ("Clusters", "clusters", "clusters:read"),
            ("Nodes", "nodes", "nodes:read"),
            ("Node pools", "node-pools", "nodepools:read"),
        ),
    ),
    (
        "Organization",
        (
            ("Departments", "departments", "departments:read"),
            ("Projects", "projects", "projects:read"),
            ("Quotas", "quotas", "projects:quota"),
        ),
    ),
    (
        "Analytics",
        (
            ("Reports", "reports", "reports:read"),
            ("What if", "what-if", "what-if:read"),
            ("Replay", "replay", "replay:read"),
        ),
    ),
    ("Policies", (("Policies", "policies", "policies:read"),)),
    (
        "Access",
        (
            ("Users", "users", "users:read"),
            ("Service accounts", "service-accounts", "applications:read"),
            ("Access rules", "access-rules", "access-rules:read"),
            ("Roles", "roles", "roles:read"),
        ),
    ),
    (
        "Administration",
        (
            ("Event history", "event-history", "audit:read"),
            ("General settings", "general-settings", "settings:read"),
            ("Notifications", "notifications", "self:read"),
        ),
    ),
)
"""Groups of the navigation: (title, ((label, path below /console/, right that it needs), ...))."""


class Frame:
    """One open page: its reader's calls and rights, and its error messages."""

    def __init__(self, title: str) -> None:
        self.client = ui.context.client
        calls, session, self._news = self.client.request.scope["state"]["console"]
        self.calls: Calls = calls
        self.reader: str = session.name
        self.rights = Rights()
        self.title = title
        self._trouble: ui.element  # the error of the reader's last action; stays until the next action
        self._unread: ui.element  # why the last refresh failed

    async def begin(self) -> None:
        """Read the rights of the reader. Raises Refusal."""
        self.rights = await rights_of(self.calls)

    def may(self, right: str) -> bool:
        """True if the right holds at any scope."""
        return self.rights.may(right)

    @contextmanager
    def shown(self, here: str) -> Iterator[None]:
        """Draws the frame around the content that the block makes."""
        ui.page_title(f"{self.title} · Pliant")
        ui.add_head_html('<link rel="stylesheet" href="/console/style.css">')
        words("a", "Skip to the content").classes("skip").props("href=#content")
        with tag("header").classes("top"):
            with tag("label").classes("q-btn plain unfold"):  # only on a phone: the navigation is long
                tag("input").props("type=checkbox")
                words("span", "Menu")
            with tag("a").classes("brand").props('href="/console/"'):
                ui.html(ICON, sanitize=False).props("aria-hidden=true")
                words("span", "Pliant")
            tag("div").classes("space")
            words("a", self.reader).classes("who").props('href="/console/settings" title="Your settings"')
            dark = ui.dark_mode(None)
            button("", lambda: dark.set_value(not dark.value), icon="contrast").props(
                'dense aria-label="Light or dark"'
            )
            with tag("form").props('method="post" action="/console/logout"'):
                words("button", "Log out").classes("q-btn plain").props("type=submit").style(
                    "padding: 5px 10px"
                )
        with tag("div").classes("shell"):
            with tag("nav").classes("side").props('aria-label="Main"'):
                for group, entries in PLACES:
                    self._linked(group, [it for it in entries if self.may(it[2])], here)
            with tag("main").classes("main").props('id="content" tabindex="-1"'):
                self._trouble, self._unread = _note(), _note()
                yield

    def _linked(self, group: str, entries: list[tuple[str, str, str]], here: str) -> None:
        if group and entries:
            words("div", group).classes("group")
        for label, path, _ in entries:
            link = words("a", label).props(f'href="/console/{path}"')
            if path == here:
                link.props('aria-current="page"')

    def trouble(self, error: Refusal | None) -> None:
        """Show an error of the server, or clear it (None). A 401 opens the login page instead."""
        self._say(self._trouble, error)

    def _say(self, note: ui.element, error: Refusal | None) -> None:
        if error is not None and error.status == 401:
            self.client.open("/login")
            return
        note.visible = error is not None
        if error is not None:
            note.clear()
            with note:
                words("span", f"{error} ({error.status})")

    async def attempt(self, act: Callable[[], Awaitable[Any]], done: str = "") -> bool:
        """Do something that the server may refuse, and show the result. True if it was done."""
        try:
            await act()
        except Refusal as error:
            self.trouble(error)
            return False
        self.trouble(None)
        if done:
            told(done)
        return True

    async def look(self, refresh: Callable[[], Awaitable[None]]) -> bool:
        """Refresh once. False: the server refused, and the page shows why."""
        try:
            await refresh()
        except Refusal as error:
            self._say(self._unread, error)
            return False
        self._say(self._unread, None)
        return True

    async def live(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Refresh now, and then as `follow` does."""
        await self.look(refresh)
        self.follow(refresh)

    def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Refresh whenever something has changed, until the page is closed."""

        async def run() -> None:
            await self.client.connected()
            with self._news() as news:
                while not self.client.is_deleted:
                    news.clear()
                    with self.client:
                        await self.look(refresh)
                    await asyncio.sleep(GAP)
                    try:
                        async with asyncio.timeout(LONGEST):
                            await news.wait()
                        await asyncio.sleep(SETTLED)
                    except TimeoutError:
                        continue

        background_tasks.create(run(), name=f"follow {self.title}")


Draw = Callable[..., Awaitable[None]]
"""Draws the content of a page: (its frame, the parameters of its path and query)."""


def page(path: str, title: str, right: str = "", here: str = "") -> Callable[[Draw], Draw]:
    """Register a page for readers with `right` at any scope; `here`: its entry in the navigation."""

    def registered(draw: Draw) -> Draw:
        async def opened(**named: Any) -> None:
            frame = Frame(title)
            try:
                await frame.begin()
            except Refusal as error:
                if error.status == 401:
                    ui.navigate.to("/login")
                    return
                with frame.shown(""):
                    words("h1", title)
                    frame.trouble(error)
                return
            with frame.shown(here or path.strip("/")):
                if frame.may(right):
                    await draw(frame, **named)
                else:
                    words("h1", title)
                    words("p", f"You may not see this page: permission {right} is missing.").classes("empty")

        signature = inspect.signature(draw)
        asked = [it for name, it in signature.parameters.items() if name != "frame"]
        opened.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
        ui.page(path, response_timeout=PATIENCE)(opened)
        return draw

    return registered


def button(label: str, act: Callable[[], Any] | None = None, look: str = "plain", **more: Any) -> ui.button:
    """`look`: primary, plain or danger. A press while `act` still runs does nothing."""
    press = act and _once_at_a_time(act)
    return ui.button(label, on_click=press, color=None, **more).classes(look).props("no-caps flat")


def _once_at_a_time(act: Callable[[], Any]) -> Callable[[], Any]:
    running = False

    async def to_its_end(result: Awaitable[Any]) -> None:
        nonlocal running
        try:
            await result
        finally:
            running = False

    def press() -> Any:
        nonlocal running
        if running:
            return None
        result = act()
        running = inspect.isawaitable(result)
        return to_its_end(result) if running else result

    return press


def _note() -> ui.element:
    """A hidden note, for an error."""
    made = tag("div").classes("note bad").props("role=alert")
    made.visible = False
    return made


def told(message: str) -> None:
    """Show for some seconds that something was done."""
    ui.notify(message, classes="told", position="bottom-right")


def tag(name: str) -> ui.element:
    """An HTML element for other elements."""
    return ui.element(name)


def words(name: str, text: str) -> TextElement:
    """An HTML element that shows the text literally."""
    return TextElement(tag=name, text=text)


@contextmanager
def heading(title: str) -> Iterator[None]:
    """The first line of a page; the block's elements go to its right end."""
    with tag("div").classes("bar"):
        words("h1", title)
        tag("div").classes("space")
        yield


@contextmanager
def card(title: str, *, level: str = "h2") -> Iterator[None]:
    """A region of a page with a title of its own."""
    with tag("section").classes("card") as region:
        words(level, title)
        region.props["aria-label"] = title
        yield
