"""`python -m hack.lab.images [NAME…]`: make the images, all by default, and print where their archives lie."""

import sys

from hack.lab.base import sidebyside
from hack.lab.base.progress import told
from hack.lab.images import images


def _make() -> int:
    for chosen in sys.argv[1:] or images.NAMES:
        print(images.archive_for(chosen))
    return 0


sidebyside.interruptible()
try:
    sys.exit(told(_make))
except KeyboardInterrupt:
    sidebyside.leave("Interrupted; what is complete stays, and the rest begins anew.")
