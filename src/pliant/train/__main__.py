"""`python -m pliant.train`."""

import sys

from pliant.train.run import main

sys.exit(main())
