"""Searches shared by many tasks: the module that the image quickstart-hpo brings, under its name."""

import sys

from pliant.engines.local.images.hpo.runai import hpo

sys.modules[__name__] = hpo  # its state is its own: there is one of it under either name
