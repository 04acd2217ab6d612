"""Nodes and their GPUs: who uses them and how much of their memory; draining with a preview."""

from typing import Any

from nicegui import ui

from pliant.console.design import tone
from pliant.console.frame import Frame, button, heading, page, tag, told, words
from pliant.console.pages.overview import tile
from pliant.console.texts import gpus, size

FULL = 0.999

BECOMES = {
    "moves": "moves to another node",
    "waits": "runs to its end where it is",
    "stops": "is stopped",
}
"""What becomes of a workload on a node that is drained."""


class Machines:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.shown: Any = None

    def draw(self) -> None:
        with heading("Nodes"):
            field = ui.input("Search").props("outlined dense clearable debounce=200 type=search")
            field.on_value_change(lambda event: self._searched(event.value or ""))
        self.search = ""
        self.totals = tag("div").classes("tiles")
        self.nodes = tag("div").classes("stack")

    async def refresh(self) -> None:
        nodes = await self.frame.calls.all("/api/v1/nodes", "nodes")
        query = [("filterBy", "phase==Running")]
        running = await self.frame.calls.all("/api/v1/workloads", "workloads", query, most=500)
        shares: dict[str, list[dict[str, Any]]] = {}
        for it in running:
            for share in it["gpuShares"]:
                shares.setdefault(share["gpu"], []).append({**share, "name": it["name"]})
        self._show(nodes, shares)

    def _searched(self, text: str) -> None:
        self.search = text.casefold()
        if self.shown is not None:
            nodes, shares, _ = self.shown
            self._show(nodes, shares)

    def _show(self, nodes: list[dict[str, Any]], shares: dict[str, list[dict[str, Any]]]) -> None:
        if self.shown == (nodes, shares, self.search):
            return
        self.shown = (nodes, shares, self.search)
        self._show_totals(nodes)
        self.nodes.clear()
        with self.nodes:
            found = [it for it in nodes if self.search in _searched_in(it)]
            if not found:
                words("p", "No node here has that in its name, labels or workloads.").classes("empty")
            for node in found:
                self._show_node(node, shares)

    def _show_totals(self, nodes: list[dict[str, Any]]) -> None:
        cards = [gpu for node in nodes for gpu in node["gpus"]]
        used = sum(gpu["allocated"] for gpu in cards)
        free = sum(not gpu["allocated"] and not gpu["foreign"] for gpu in cards)
        split = sum(0 < gpu["allocated"] < FULL for gpu in cards)
        largest = max((sum(not gpu["allocated"] for gpu in it["gpus"]) for it in nodes), default=0)
        ready = sum(node["status"] == "Ready" for node in nodes)
        self.totals.clear()
        with self.totals:
            tile("Ready/total nodes", f"{ready}/{len(nodes)}")
            tile("Allocated/total GPUs", f"{gpus(used)}/{len(cards)}")
            tile("Free GPUs", str(free), note=f"at most {largest} on one node")
            tile("GPUs used in part", str(split), note="what is left of them fits fractions only")

    def _show_node(self, node: dict[str, Any], shares: dict[str, list[dict[str, Any]]]) -> None:
        name = node["name"]
        with tag("section").classes("card") as region:
            region.props["aria-label"] = f"Node {name}"
            with tag("div").classes("bar"):
                words("h2", name)
                words("span", node["status"]).classes(f"chip {tone(node['status'])}")
                if node["draining"]:
                    words("span", "Cordoned").classes("chip waits")
                if node["simulated"]:
                    words("span", "simulated").classes("chip quiet")
                tag("div").classes("space")
                if self.frame.may("nodes:update"):
                    verb = "uncordon" if node["draining"] else "cordon"
                    button(verb.capitalize(), lambda: self._cordon(name, verb))
                    if not node["draining"]:
                        button("Drain", lambda: self._drain(name), "danger")
            cpu = f"{node['cpuAllocated']:g} of {node['cpuCores']:g} cores"
            memory = f"{size(node['memoryAllocated'])} of {size(node['memoryBytes'])} memory"
            kind = f" GPUs: {node['gpuInfo']['gpuType']}." if node["gpuInfo"] else ""
            words("p", f"Node pool {node['nodePool']}.{kind} Allocated: {cpu}, {memory}.").classes("soft")
            for it in node["conditions"]:
                if it["message"]:
                    words("p", it["message"]).classes("note waits")
            with tag("div").classes("tiles"):
                for gpu in node["gpus"]:
                    _show_gpu(gpu, shares.get(gpu["uuid"], []))

    async def _cordon(self, name: str, verb: str) -> None:
        send = self.frame.calls.send
        await self.frame.attempt(lambda: send("POST", f"/api/v1/nodes/{name}/{verb}"), f"{name}: {verb}ed.")

    async def _drain(self, name: str) -> None:
        """Show what would happen, and drain the node if the reader confirms."""
        send, path = self.frame.calls.send, f"/api/v1/nodes/{name}/drain"

        async def preview() -> None:
            found = (await send("POST", path, {}, query=[("dryRun", True)])).json()
            lines = [f"{it['name']} ({it['project']}): {BECOMES[it['what']]}" for it in found["workloads"]]
            with ui.dialog().props('aria-labelledby="drain"') as dialog, tag("div").classes("card"):
                words("h2", f"Drain {name}?").props("id=drain")
                words("p", "Nothing new comes to it. What runs there:" if lines else "Nothing runs there.")
                with tag("ul"):
                    for line in lines:
                        words("li", line)
                words("p", "No job is stopped: what cannot move runs there to its end.").classes("soft")
                with tag("div").classes("bar"):
                    tag("div").classes("space")
                    button("Keep", lambda: dialog.submit(False))
                    button("Drain", lambda: dialog.submit(True), "danger")
            answer = await dialog
            dialog.delete()
            if answer:
                await send("POST", path, {})
                told(f"{name} is drained.")

        await self.frame.attempt(preview)


def _searched_in(node: dict[str, Any]) -> str:
    users = [name for gpu in node["gpus"] for name in gpu["workloads"]]
    labels = [f"{key}={value}" for key, value in node["labels"].items()]
    return " ".join([node["name"], node["nodePool"], *labels, *users]).casefold()


def _show_gpu(gpu: dict[str, Any], shares: list[dict[str, Any]]) -> None:
    """Show a GPU's parts to scale, the workloads on them, and the memory that each uses of its limit."""
    share = min(100, round(100 * gpu["allocated"]))
    with tag("div").classes("tile").props(f'role=group aria-label="GPU {gpu["index"]}"'):
        words("strong", f"GPU {gpu['index']}")
        words("div", f"{gpus(gpu['allocated'])} allocated, {size(gpu['memoryBytes'])}").classes("soft")
        with tag("div").classes("meter").props(f'role=img aria-label="{share} % allocated"'):
            if shares:
                for it in shares:
                    part = 100 * it["limitBytes"] / gpu["memoryBytes"]
                    tag("div").classes("part piece").style(f"width: {part:.1f}%")
            else:
                tag("div").classes("part").style(f"width: {share}%")
        if not shares:
            words("div", ", ".join(gpu["workloads"]) or ("in use by others" if gpu["foreign"] else "free"))
        for it in shares:
            with tag("div"):
                words("span", it["name"])
                used = f"{size(it['usedBytes'])} used of {size(it['limitBytes'])}"
                words("div", used).classes("soft")


@page("/nodes", "Nodes", "nodes:read")
async def nodes(frame: Frame) -> None:
    machines = Machines(frame)
    machines.draw()
    await frame.live(machines.refresh)
