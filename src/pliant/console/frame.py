"""What every page has: navigation, who reads it, a place for trouble, and news as they come."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import background_tasks, ui
from nicegui.elements.mixins.text_element import TextElement

from pliant.console.calls import Calls, Refusal
from pliant.console.design import ICON

GAP = 0.7
"""Seconds between two looks of one page, however often something changes."""

LONGEST = 15.0
"""Seconds after which a page looks again though nothing has changed: ages grow."""

PLACES = (
    ("", (("Overview", "overview"),)),
    ("Workload manager", (("Workloads", "workloads"),)),
    ("Resources", (("Nodes", "nodes"),)),
    ("Organization", (("Projects", "projects"), ("Departments", "departments"))),
)
"""Groups of the navigation: (title, ((label, path below /console/), ...))."""


class Frame:
    """One open page: its reader's calls, and where it says what went wrong."""

    def __init__(self, title: str) -> None:
        self.client = ui.context.client
        calls, session, self._news = self.client.request.scope["state"]["console"]
        self.calls: Calls = calls
        self.reader: str = session.name
        self.title = title
        self._trouble: ui.element

    @contextmanager
    def shown(self, here: str) -> Iterator[None]:
        """Draws everything around the content that is made within."""
        ui.page_title(f"{self.title} · Pliant")
        ui.add_head_html('<link rel="stylesheet" href="/console/style.css">')
        words("a", "Skip to the content").classes("skip").props("href=#content")
        with tag("header").classes("top"):
            with tag("a").classes("brand").props('href="/console/"'):
                ui.html(ICON, sanitize=False).props("aria-hidden=true")
                words("span", "Pliant")
            tag("div").classes("space")
            words("span", self.reader).classes("who")
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
                    if group:
                        words("div", group).classes("group")
                    for label, path in entries:
                        link = words("a", label).props(f'href="/console/{path}"')
                        if path == here:
                            link.props('aria-current="page"')
            with tag("main").classes("main").props('id="content" tabindex="-1"'):
                self._trouble = tag("div").classes("note bad").props("role=alert")
                self._trouble.visible = False
                yield

    def trouble(self, error: Refusal | None) -> None:
        """Shows or takes back what the server says is wrong; without a login the reader is asked for one."""
        if error is not None and error.status == 401:
            self.client.open("/login")
            return
        self._trouble.visible = error is not None
        if error is not None:
            self._trouble.clear()
            with self._trouble:
                words("span", f"{error} ({error.status})")

    async def attempt(self, act: Callable[[], Awaitable[Any]], done: str = "") -> bool:
        """Does something that the server may refuse; says so either way. True: it was done."""
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
        """Reads what is shown once. False: the server refused, and the page says so."""
        try:
            await refresh()
        except Refusal as error:
            self.trouble(error)
            return False
        self.trouble(None)
        return True

    def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Reads it again whenever something has changed, until the page is closed."""

        async def run() -> None:
            await self.client.connected()
            with self._news() as news:
                while not self.client.is_deleted:
                    news.clear()
                    with self.client:
                        await self.look(refresh)
                    await asyncio.sleep(GAP)
                    try:
                        await asyncio.wait_for(news.wait(), LONGEST)
                    except TimeoutError:
                        continue

        background_tasks.create(run(), name=f"follow {self.title}")


class text(TextElement):
    """An element of HTML that shows text as it is, whatever is in it."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(tag=name, text=text)


def button(label: str, act: Callable[[], Any] | None = None, look: str = "plain", **more: Any) -> ui.button:
    """`look`: primary, plain or danger."""
    return ui.button(label, on_click=act, color=None, **more).classes(look).props("no-caps flat")


def told(message: str) -> None:
    """Says for some seconds that something was done."""
    ui.notify(message, classes="told", position="bottom-right")


def tag(name: str) -> ui.element:
    """An element of HTML for other elements."""
    return ui.element(name)


def words(name: str, text: str) -> TextElement:
    """An element of HTML that shows text as it is, whatever is in it."""
    return TextElement(tag=name, text=text)
