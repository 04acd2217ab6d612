"""The built-in quickstart image: a small, real, data-parallel training run on handwritten digits.

It runs inside a task as ``python -m pliant.engines.local.images.quickstart``, needs NumPy only and imports
nothing else of Pliant. What it does and which variables it reads: ``__main__``.
"""
