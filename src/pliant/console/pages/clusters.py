"""Clusters and node pools, as tables."""

from typing import Any

from pliant.console.forms import Sheet, sure
from pliant.console.frame import Frame, button, heading, page, told
from pliant.console.tables import Column, Table
from pliant.console.texts import clock, duration

STRATEGIES = {
    "binpack": "Bin-pack: fill one GPU after the other",
    "spread": "Spread: over as many as there are",
}


@page("/clusters", "Clusters", "clusters:read")
async def clusters(frame: Frame) -> None:
    with heading("Clusters"):
        pass
    columns = (
        Column("name", "Cluster", "link"),
        Column("status", "Status", "chip"),
        Column("nodes", "Nodes", "number"),
        Column("gpus", "GPUs", "number"),
        Column("version", "Version"),
        Column("created", "Creation time"),
        Column("uuid", "Cluster ID", hidden=True),
    )
    table = Table(columns, empty="There is no cluster.", file="clusters")

    async def refresh() -> None:
        nodes = await frame.calls.all("/api/v1/nodes", "nodes") if frame.may("nodes:read") else []
        table.show(
            [
                {
                    "id": it["uuid"],
                    "name": it["name"],
                    "href": "/console/nodes" if frame.may("nodes:read") else "",
                    "status": it["status"]["state"],
                    "tone": "good" if it["status"]["state"] == "Connected" else "bad",
                    "nodes": len(nodes),
                    "gpus": sum(len(node["gpus"]) for node in nodes),
                    "version": it["version"],
                    "created": clock(it["createdAt"]),
                    "uuid": it["uuid"],
                }
                for it in await frame.calls.get("/api/v1/clusters")
            ]
        )

    await frame.live(refresh)


class Pools:
    path = "/api/v1/node-pools"

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.writes = frame.may("nodepools:write")

    def draw(self) -> None:
        with heading("Node pools"):
            if self.writes:
                button("+ New node pool", self._create, "primary")
        columns = (
            Column("name", "Node pool"),
            Column("status", "Status", "chip"),
            Column("label", "Label of its nodes"),
            Column("nodes", "Nodes", "number"),
            Column("used", "Allocated GPUs", "gpus"),
            Column("gpus", "GPUs", "number"),
            Column("free", "Largest free piece on one node", "gpus"),
            Column("packing", "GPU placement"),
            Column("least", "Minimum run time"),
        )
        act = self._act if self.writes else None
        self.table = Table(columns, empty="There is no node pool.", file="node-pools", act=act)

    async def refresh(self) -> None:
        pools = await self.frame.calls.all(self.path, "nodepools")
        nodes = []
        if self.frame.may("nodes:read"):
            nodes = await self.frame.calls.all("/api/v1/nodes", "nodes")
        self.table.show(
            [self._row(it, [one for one in nodes if one["nodePool"] == it["name"]]) for it in pools]
        )

    def _row(self, pool: dict[str, Any], nodes: list[dict[str, Any]]) -> dict[str, Any]:
        free = [sum(max(0.0, 1 - gpu["allocated"]) for gpu in it["gpus"]) for it in nodes]
        least = pool["minRuntimeSeconds"]
        return {
            "id": pool["id"],
            "name": pool["name"],
            "status": pool["phase"],
            "tone": "good" if pool["phase"] == "Ready" else "waits",
            "label": f"{pool['labelKey']}={pool['labelValue']}" if pool["labelKey"] else "all other nodes",
            "nodes": len(nodes),
            "used": round(sum(gpu["allocated"] for it in nodes for gpu in it["gpus"]), 2),
            "gpus": sum(len(it["gpus"]) for it in nodes),
            "free": round(max(free, default=0), 2),
            "packing": pool["placementStrategy"]["gpu"],
            "strategy": pool["placementStrategy"]["gpu"],
            "seconds": least,
            "least": duration(least) if least else "",
            "actions": "Edit" if pool["isDefault"] else "Edit,Delete",
        }

    async def _create(self) -> None:
        async def send(values: dict[str, Any]) -> Any:
            body = {
                "name": values["name"],
                "labelKey": values["labelKey"],
                "labelValue": values["labelValue"],
            }
            body["placementStrategy"] = {"gpu": values["gpu"], "cpu": values["gpu"]}
            return (await self.frame.calls.send("POST", self.path, body)).json()

        sheet = Sheet("New node pool", "Create node pool", send)
        sheet.name("name", "Node pool name")
        sheet.say("All nodes that carry this label belong to it.")
        sheet.text("labelKey", "Label key", needed=True)
        sheet.text("labelValue", "Label value", needed=True)
        sheet.choice("gpu", "GPU placement", STRATEGIES, "binpack")
        if (made := await sheet.asked()) is not None:
            told(f"{made['name']} was created.")
            await self.frame.look(self.refresh)

    async def _act(self, label: str, row: dict[str, Any]) -> None:
        path = f"{self.path}/{row['id']}"
        if label == "Delete":
            if await sure(f"Delete {row['name']}?", "Its nodes go to the pool default.", "Delete"):
                done = f"{row['name']} was deleted."
                await self.frame.attempt(lambda: self.frame.calls.send("DELETE", path), done)
                await self.frame.look(self.refresh)
            return

        async def send(values: dict[str, Any]) -> Any:
            change = {
                "placementStrategy": {"gpu": values["gpu"]},
                "minRuntimeSeconds": values["seconds"] or 0,
            }
            return await self.frame.calls.send("PATCH", path, change)

        sheet = Sheet(f"Edit {row['name']}", "Save", send, {"minRuntimeSeconds": "seconds"})
        sheet.choice("gpu", "GPU placement", STRATEGIES, row["strategy"])
        sheet.number("seconds", "Minimum run time before it is taken from", row["seconds"] or 0, "s")
        if await sheet.asked() is not None:
            told(f"{row['name']} was changed.")
            await self.frame.look(self.refresh)


@page("/node-pools", "Node pools", "nodepools:read")
async def node_pools(frame: Frame) -> None:
    pools = Pools(frame)
    pools.draw()
    await frame.live(pools.refresh)
