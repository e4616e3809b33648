"""`python -m persfl` is the command `persfl`."""

import sys

from persfl.cli import main

sys.exit(main())
