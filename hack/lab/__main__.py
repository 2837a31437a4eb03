"""`python -m hack.lab`. The commands are in cli.py."""

import sys

from hack.lab.base import sidebyside
from hack.lab.cli import main

sidebyside.interruptible()
sys.exit(main())
