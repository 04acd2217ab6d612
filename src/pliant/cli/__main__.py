"""`python -m pliant.cli` for where the console script is not on the path."""

import sys

from pliant.cli.main import main

sys.exit(main())
