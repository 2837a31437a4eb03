"""How is it said that something is not as it must be?"""

from dataclasses import dataclass

# What a finding is about.
LOST = "lost"  # a worker that shall run and does not
DOUBLED = "doubled"  # one that has two copies
ORPHAN = "orphan"  # something that stands for nothing
LEDGER = "ledger"  # quota that is reserved and promised to nobody, or the reverse
RECORD = "record"  # a Workload and its Placement that contradict each other
LAB = "lab"  # the clusters, or our contact with them
CRASH = "crash"  # our controller ended without being killed


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must be, in a sentence."""

    kind: str
    text: str
