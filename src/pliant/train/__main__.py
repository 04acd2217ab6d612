"""`python -m pliant.train`."""

import sys

from pliant.train.agent.run import main

sys.exit(main())
