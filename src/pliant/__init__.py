"""Pliant shares GPUs between teams. Only the version is here, and nothing imported: the CLI starts fast."""

__version__ = "0.1.0"
