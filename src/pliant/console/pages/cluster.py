"""Machines: the cluster, its nodes, every GPU and who uses it."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from pliant.console.design import tone
from pliant.console.frame import Frame, button, tag, told, words
from pliant.console.texts import gpus, size


class Machines:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.shown: Any = None

    def draw(self) -> None:
        words("h1", "Nodes")
        self.totals = tag("div").classes("tiles")
        self.pools = tag("section").classes("card").props('aria-label="Node pools"')
        self.nodes = tag("div").style("display: flex; flex-direction: column; gap: 16px")

    async def refresh(self) -> None:
        calls = self.frame.calls
        nodes = await calls.all("/api/v1/nodes", "nodes")
        pools = await calls.all("/api/v1/node-pools", "nodepools")
        clusters = await calls.get("/api/v1/clusters")
        if self.shown == (nodes, pools, clusters):
            return
        self.shown = (nodes, pools, clusters)
        self._show_totals(nodes, clusters[0])
        self._show_pools(nodes, pools)
        self.nodes.clear()
        with self.nodes:
            for node in nodes:
                self._show_node(node)

    def _show_totals(self, nodes: list[dict[str, Any]], cluster: Mapping[str, Any]) -> None:
        cards = [gpu for node in nodes for gpu in node["gpus"]]
        used = sum(gpu["allocated"] for gpu in cards)
        free = sum(not gpu["allocated"] and not gpu["foreign"] for gpu in cards)
        ready = sum(node["status"] == "Ready" for node in nodes)
        self.totals.clear()
        with self.totals:
            for label, number in (
                ("Ready/total nodes", f"{ready}/{len(nodes)}"),
                ("Allocated/total GPUs", f"{gpus(used)}/{len(cards)}"),
                ("Free GPUs", str(free)),
            ):
                with tag("div").classes("tile"):
                    words("div", label).classes("soft")
                    words("div", number).classes("number")
            with tag("div").classes("tile"):
                words("div", f"Cluster {cluster['name']}").classes("soft")
                words("div", "Cluster ID").classes("soft")
                words("code", cluster["uuid"])

    def _show_pools(self, nodes: list[dict[str, Any]], pools: list[dict[str, Any]]) -> None:
        self.pools.clear()
        with self.pools:
            words("h2", "Node pools")
            with tag("dl").classes("facts"):
                for pool in pools:
                    own = [node for node in nodes if node["nodePool"] == pool["name"]]
                    cards = [gpu for node in own for gpu in node["gpus"]]
                    words("dt", pool["name"])
                    count = "1 node" if len(own) == 1 else f"{len(own)} nodes"
                    packing = pool["placementStrategy"]["gpu"]
                    used = gpus(sum(gpu["allocated"] for gpu in cards))
                    words("dd", f"{count}, {used} of {len(cards)} GPUs allocated, GPUs by {packing}")

    def _show_node(self, node: dict[str, Any]) -> None:
        name = node["name"]
        with tag("section").classes("card").props(f'aria-label="Node {name}"'):
            with tag("div").classes("bar"):
                words("h2", name)
                words("span", node["status"]).classes(f"chip {tone(node['status'])}")
                if node["draining"]:
                    words("span", "Cordoned").classes("chip waits")
                if node["simulated"]:
                    words("span", "simulated").classes("chip quiet")
                tag("div").classes("space")
                verb = "uncordon" if node["draining"] else "cordon"
                button(verb.capitalize(), lambda: self._cordon(name, verb))
                if not node["draining"]:
                    button("Drain", lambda: self._drain(name), "danger")
            cpu = f"{node['cpuAllocated']:g} of {node['cpuCores']:g} cores"
            memory = f"{size(node['memoryAllocated'])} of {size(node['memoryBytes'])} memory"
            words("p", f"Node pool {node['nodePool']}. Allocated: {cpu}, {memory}.").classes("soft")
            with tag("div").classes("tiles"):
                for gpu in node["gpus"]:
                    self._show_gpu(gpu)

    def _show_gpu(self, gpu: dict[str, Any]) -> None:
        share = min(100, round(100 * gpu["allocated"]))
        with tag("div").classes("tile"):
            words("strong", f"GPU {gpu['index']}")
            words("div", f"{gpus(gpu['allocated'])} allocated of {size(gpu['memoryBytes'])}").classes("soft")
            with tag("div").classes("meter").props(f'role=img aria-label="{share} % allocated"'):
                tag("div").classes("part").style(f"width: {share}%")
            users = ", ".join(gpu["workloads"]) or ("in use by others" if gpu["foreign"] else "free")
            words("div", users)

    async def _cordon(self, name: str, verb: str) -> None:
        send = self.frame.calls.send
        await self.frame.attempt(lambda: send("POST", f"/api/v1/nodes/{name}/{verb}"), f"{name}: {verb}ed.")

    async def _drain(self, name: str) -> None:
        """Shows what would happen, then does it."""
        send, path = self.frame.calls.send, f"/api/v1/nodes/{name}/drain"

        async def preview() -> None:
            found = (await send("POST", path, {}, query=[("dryRun", True)])).json()
            lines = [f"{it['name']} ({it['project']}): {it['what']}" for it in found["workloads"]]
            with ui.dialog().props('aria-labelledby="drain"') as dialog, tag("div").classes("card"):
                words("h2", f"Drain {name}?").props("id=drain")
                words("p", "Nothing new comes to it. What runs there:" if lines else "Nothing runs there.")
                with tag("ul"):
                    for line in lines:
                        words("li", line)
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


@ui.page("/nodes")
async def nodes() -> None:
    frame = Frame("Nodes")
    with frame.shown("nodes"):
        machines = Machines(frame)
        machines.draw()
        await frame.look(machines.refresh)
        frame.follow(machines.refresh)
