"""`python -m hack.lab`. The commands are in cli.py."""

import sys

from hack.lab.cli import main

sys.exit(main())
