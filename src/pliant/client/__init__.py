"""The SDK, on the standard library alone. Most programs need only `from pliant.client import Client`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.client.aio import AsyncClient as AsyncClient
    from pliant.client.client import Client as Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    # Imported on first use: jobs import only pliant.client.errors and must not pay for an HTTP client.
    if name == "Client":
        from pliant.client.client import Client

        return Client
    if name == "AsyncClient":
        from pliant.client.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
