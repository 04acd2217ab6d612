"""A terminal with a shell in a running task, as `pliant exec -it` starts one."""

import asyncio
import codecs
import contextlib
from collections.abc import Callable

from nicegui import background_tasks, ui
from nicegui.events import XtermDataEventArguments, XtermResizeEventArguments

from pliant.console.calls import Refusal
from pliant.console.frame import Frame, button, tag, words

SHELL = ["sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i"]

ROWS, COLUMNS = 20, 100

LEAVE = """event => {
  if (event.ctrlKey && event.key === 'F6') {
    event.stopPropagation()
    document.querySelector('[aria-label="End the terminal"]').focus()
  }
}"""
"""Ctrl+F6 moves the focus out of the terminal, which takes every other key, also Tab."""


class Terminal:
    """One shell at a time; it ends with the page."""

    def __init__(self, frame: Frame, path: str, pod: Callable[[], str]) -> None:
        """`path`: of the workload in the API; `pod`: returns the chosen task."""
        self.frame, self.path, self.pod = frame, path, pod
        self.session = ""
        self.keys: asyncio.Queue[str] = asyncio.Queue()  # of the current session
        with tag("div").classes("bar"):
            words("h2", "Terminal")
            tag("div").classes("space")
            self.begin = button("Open a terminal", self._open)
            self.end = button("End", self._close).props('aria-label="End the terminal"')
        self.note = words("p", "").classes("soft").props("role=status")
        self.box = tag("div").classes("terminal")
        self.end.visible = self.box.visible = False

    async def _open(self) -> None:
        self.box.clear()
        self.keys = asyncio.Queue()
        with self.box:
            self.screen = ui.xterm(
                {"screenReaderMode": True, "cols": COLUMNS, "rows": ROWS, "convertEol": False},
                on_data=self._typed,
                on_resize=self._resized,
            )
        self.box.on("keydown.capture", js_handler=LEAVE)

        async def start() -> None:
            body = {
                "command": SHELL,
                "tty": True,
                "stdin": True,
                "rows": 20,
                "columns": 100,
                "pod": self.pod(),
            }
            told = (await self.frame.calls.send("POST", f"{self.path}/exec", body)).json()
            self.session = told["id"]

        if not await self.frame.attempt(start):
            return
        self._shown(True)
        self.note.text = "Ctrl+F6 leaves the terminal."
        typing = background_tasks.create(self._type(self.session, self.keys), name="terminal: input")
        background_tasks.create(self._print(self.session, typing), name="terminal: output")
        ui.run_javascript("document.querySelector('.terminal textarea').focus()")

    def _shown(self, on: bool) -> None:
        self.box.visible = self.end.visible = on
        self.begin.visible = not on

    def _typed(self, event: XtermDataEventArguments) -> None:
        self.keys.put_nowait(event.data)

    async def _resized(self, event: XtermResizeEventArguments) -> None:
        if self.session:
            size = {"rows": event.rows, "columns": event.cols}
            with contextlib.suppress(Refusal):  # it has just ended
                await self.frame.calls.send("POST", f"/api/v1/exec/{self.session}/resize", size)

    async def _type(self, session: str, keys: asyncio.Queue[str]) -> None:
        """Send the keys in order, many at once if the server is slow."""
        while True:
            text = await keys.get()
            while not keys.empty():
                text += keys.get_nowait()
            with contextlib.suppress(Refusal):  # it has just ended, as the output shows
                await self.frame.calls.send("POST", f"/api/v1/exec/{session}/input", text.encode())

    async def _print(self, session: str, typing: asyncio.Task[None]) -> None:
        """Show the output until the session ends; its input ends then too."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        why = "The shell has ended."
        try:
            async for piece in self.frame.calls.stream(f"/api/v1/exec/{session}/output"):
                if self.frame.client.is_deleted:
                    break
                self.screen.write(decoder.decode(piece))
        except Refusal as error:
            why = str(error)
        finally:
            typing.cancel()
        if self.frame.client.is_deleted:
            await self._kill(session)
        elif self.session == session:
            self._shown(False)
            self.note.text = why
            self.session = ""

    async def _close(self) -> None:
        session, self.session = self.session, ""
        await self._kill(session)
        self._shown(False)
        self.note.text = "The terminal was ended."

    async def _kill(self, session: str) -> None:
        with contextlib.suppress(Refusal):  # it ended by itself
            await self.frame.calls.send("DELETE", f"/api/v1/exec/{session}")
