"""The web console in a real Chromium: a cold page, a long table beside a short one, and what open pages cost.

Two servers with 10 and 10,000 pending workloads; their tables are opened alternately. Cold: the browser's
cache is empty, but the server has shown the page before. 50 pages stay open on the short table while a
workload is submitted and deleted every 5 s; their cost is the difference to the same without any page.
References in the same run: the login page, which has no scripts, and the table of 10.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from measure import Server, cpu_seconds, family, head, percentile, resident, row, tiny, took, training
from playwright.sync_api import Browser, Page, expect, sync_playwright

PAGES, EVERY, ARRAY = 50, 5.0, 1000


def main() -> int:
    short = tiny(__doc__)
    many, rounds, pages, seconds = (60, 1, 2, 1.0) if short else (10_000, 9, PAGES, 60.0)
    expect.set_options(timeout=120_000)
    with Server("1x2") as few, Server("1x2") as full, sync_playwright() as playwright:
        fill(few, 10)
        fill(full, many)
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            first, (login, cold, size) = opened_first(browser, few), loads(browser, few, rounds)
            of_few, of_many = tables(browser, few, full, rounds)
            seen, command = live(browser, few, rounds)
            before, without = cost(few, seconds)
            opened = [logged_in(browser, few) for _ in range(pages)]
            settle(few)
            after, beside = cost(few, seconds)
            for it in opened:
                it.context.close()
        finally:
            browser.close()
    head(f"medians of {rounds}; open pages: {seconds:g} s each")
    row(
        "a cold table, until it is shown",
        statistics.median(cold),
        "ms",
        target=2000,
        to=(login, "login page"),
    )
    row("of that the slowest", percentile(cold, 1), "ms", to=(login, "login page"))
    row("the first page of a server that started", first, "ms", target=2000, to=(login, "login page"))
    row("bytes of a cold table", size / 1e6, "MB", target=1.2, to=(1.2, "the goal"))
    row("a table of 10", of_few, "ms", to=(login, "login page"))
    label = f"a table of {many:,}: longer by"
    row(label, of_many - of_few, "ms", target=300, to=(of_few, "a table of 10"))
    row(
        "a submission, from its command's end to the page",
        seen,
        "ms",
        target=1500,
        to=(command, "the command"),
    )
    row(f"{pages} open pages: CPU", beside - without, "%", target=10, to=(100, "a core"))
    row("the same changes without a page: CPU", without, "%", to=(100, "a core"))
    row(f"{pages} open pages: memory", after - before, "MB", target=300, to=(before, "without a page"))
    return 0


def fill(server: Server, count: int) -> None:
    """Submits `count` workloads that stay pending."""
    server.run("project", "create", "team-a", "--quota", "0", "--limit", "0")
    spec = ("-i", "ubuntu", "-g", "1", "-p", "team-a")
    for begin in range(0, count, ARRAY):
        last = min(ARRAY, count - begin) - 1
        server.run("submit", f"w{begin}", *spec, "--array", f"0-{last}", "--", "sleep", "infinity")


def logged_in(browser: Browser, server: Server) -> Page:
    """The table of workloads in a browser without a cache."""
    page = browser.new_context(viewport={"width": 1360, "height": 900}).new_page()
    page.goto(server.run("console", "--print-url").strip())
    shown(page)
    return page


def shown(page: Page) -> None:
    expect(page.get_by_role("row").nth(5)).to_be_visible()


def opened_first(browser: Browser, server: Server) -> float:
    """ms from a one-time link to the table, on a server that has shown no page and imports them first."""
    page = browser.new_context(viewport={"width": 1360, "height": 900}).new_page()
    ms = took(opening(page, server.run("console", "--print-url").strip()))
    page.context.close()
    return ms


def loads(browser: Browser, server: Server, rounds: int) -> tuple[float, list[float], int]:
    """ms of the login page, ms of each cold table, bytes of one."""
    page = logged_in(browser, server)
    client = page.context.new_cdp_session(page)
    client.send("Network.enable")
    client.send("Network.setCacheDisabled", {"cacheDisabled": True})
    received: list[int] = []
    client.on("Network.loadingFinished", lambda it: received.append(it["encodedDataLength"]))
    home = page.url.partition("/console/")[0]
    login, cold = [], []
    for _ in range(rounds):
        login.append(took(lambda: page.goto(f"{home}/console/login")))
        received.clear()
        cold.append(took(opening(page, f"{home}/console/workloads")))
    page.wait_for_load_state("networkidle")
    page.context.close()
    return statistics.median(login), cold, sum(received)


def tables(browser: Browser, few: Server, full: Server, rounds: int) -> tuple[float, float]:
    """ms to open each table again, alternating."""
    both: list[Any] = []
    for server in (few, full):
        page = logged_in(browser, server)
        both.append((opening(page, page.url), list[float](), page))
    for _ in range(rounds):
        for run, times, _ in both:
            times.append(took(run))
    for _, _, page in both:
        page.context.close()
    return statistics.median(both[0][1]), statistics.median(both[1][1])


def live(browser: Browser, server: Server, rounds: int) -> tuple[float, float]:
    """ms from the end of a command that submits until the open table shows it, and ms of the command."""
    page = logged_in(browser, server)
    seen, commands = [], []
    for number in range(rounds):
        spec = ("-i", "ubuntu", "-g", "1", "-p", "team-a", "--", "sleep", "infinity")
        commands.append(took(partial(server.run, "submit", f"seen{number}", *spec)))
        link = page.get_by_role("link", name=f"seen{number}", exact=True)
        seen.append(took(expect(link).to_be_visible))
        server.run("delete", f"seen{number}", "-p", "team-a")
    page.context.close()
    return statistics.median(seen), statistics.median(commands)


def settle(server: Server) -> None:
    """Wait until the server is idle for a second: it still works for pages after they are shown."""
    until = time.monotonic() + 120
    pids = family(server.pid)
    while time.monotonic() < until:
        used = sum(map(cpu_seconds, pids))
        time.sleep(1)
        if sum(map(cpu_seconds, pids)) - used < 0.1:
            return
    sys.exit("the pages did not come to rest within 120 s")


def opening(page: Page, url: str) -> Callable[[], None]:
    def run() -> None:
        page.goto(url)
        shown(page)

    return run


def cost(server: Server, seconds: float) -> tuple[float, float]:
    """MB of server and decider, and their percent of a core, while workloads are submitted and deleted."""
    with server.client() as client:
        pids = family(server.pid)
        used, began = sum(map(cpu_seconds, pids)), time.monotonic()
        number = 0
        while time.monotonic() < began + seconds:
            name = f"x{number}"
            client.submit("Training", training(name, "sleep", "infinity"))
            time.sleep(min(seconds, EVERY) / 2)
            server.run("delete", name)
            time.sleep(min(seconds, EVERY) / 2)
            number += 1
        share = 100 * (sum(map(cpu_seconds, pids)) - used) / (time.monotonic() - began)
        return sum(map(resident, pids)), share


if __name__ == "__main__":
    sys.exit(main())
