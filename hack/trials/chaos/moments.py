"""How far is a new gang on its way to running? Pure: one look in; a moment that has passed counts as reached."""

from adapter import names
from adapter.objects.placement import placement
from adapter.objects.raw import label, meta
from adapter.objects.workload import workload
from hack.trials.chaos.draw import MOMENTS
from hack.trials.chaos.look import Sight


def reached(moment: str, gang: str, sight: Sight) -> bool:
    """Whether a gang has come to one of draw.MOMENTS, or beyond it."""
    return _stage(gang, sight) >= MOMENTS.index(moment)


def _stage(gang: str, sight: Sight) -> int:
    uids = {work.uid for work in map(workload, sight.workloads) if work.job and work.job.name == gang}
    places = [place for place in map(placement, sight.placements) if place.workload_uid in uids]
    called = {place.name for place in places}
    ours = [one for member in sight.members.values() for one in (*member.pods, *member.shares)]
    mine = [one for one in ours if label(one, names.PLACEMENT_LABEL) in called]
    passed = {
        "submitted": any(meta(job).get("name") == gang for job in sight.jobs),
        "planned": any(place.shares for place in places),
        "reserved": bool(mine),
        "placed": any(place.status.get("state") == names.PLACED for place in places),
        "dispatched": any(label(one, names.POD_UID_LABEL) for one in mine),
    }
    return max((MOMENTS.index(moment) for moment, yes in passed.items() if yes), default=-1)
