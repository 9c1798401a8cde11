"""`python -m flyball` is the command `flyball`."""

import sys

from flyball.cli import main

sys.exit(main())
