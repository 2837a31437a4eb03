"""How is it said what was decided of a gang: on its check, on its Placement, and on the job that its user looks at?

A reason to wait and a status that stand there already are not written again, so a gang that only waits costs no writes. What
is said is not worded here (explain.py), and whether it is to be said is for who decides.
"""

from collections.abc import Mapping

from adapter import names
from adapter.actions import Action, Record, SetCheck
from adapter.gang.facts import Gang
from adapter.objects.placement import Placement
from adapter.objects.raw import bounded
from adapter.objects.workload import Workload


def pending(gang: Gang, work: Workload, message: str) -> list[Action]:
    """Let the Workload wait, with the reason on its check."""
    entry, message = work.checks[gang.check], bounded(message)
    if entry.state == names.CHECK_PENDING and entry.message == message:
        return []
    return [check(gang, work, names.CHECK_PENDING, message)]


def check(gang: Gang, work: Workload, state: str, message: str) -> SetCheck:
    """Write our entry of the Workload's checks."""
    return SetCheck(work, gang.check, state, bounded(message))


def record(placement: Placement, status: Mapping[str, object]) -> list[Action]:
    """Write the Placement's status, as far as it is another."""
    return [] if all(placement.status.get(k) == v for k, v in status.items()) else [Record(placement, status)]
