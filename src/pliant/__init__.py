"""Pliant shares GPUs between teams. This module holds the version and imports nothing, so that the CLI starts fast."""

__version__ = "0.1.0"
