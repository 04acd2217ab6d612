"""Makes the module of the image quickstart-hpo importable as `runai.hpo`: searches that tasks share."""

import sys

from pliant.engines.local.images.hpo.runai import hpo

sys.modules[__name__] = hpo  # one module object, and so one state, under both names
