"""Gradient accumulation for PyTorch: see `optim`."""

from runai.ga.torch import optim

__all__ = ["optim"]
