"""`python -m pliant.train.agent`."""

import sys

from pliant.train.agent.service import main

sys.exit(main())
