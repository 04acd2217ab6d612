"""`python -m pliant.train`."""

import sys

from pliant.train.commands import main

sys.exit(main())
