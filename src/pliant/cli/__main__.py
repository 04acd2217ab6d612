"""Runs the command line as `python -m pliant.cli`, for when the console script is not in PATH."""

import sys

from pliant.cli.main import main

sys.exit(main())
