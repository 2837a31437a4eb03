"""`python -m hack.lab.images [NAME…]`: makes the images, all of them if none is named, and prints where their archives lie."""

import sys

from hack.lab.base.progress import LabError
from hack.lab.images import images

try:
    for chosen in sys.argv[1:] or images.NAMES:
        print(images.archive_for(chosen))
except LabError as failure:
    sys.exit(str(failure))
