"""Whether a gang of an incomplete namespace has ended, judged by its owner as the manager's API server has it.

The stores lack the objects of an incomplete namespace, so its gangs are left as they are. But an ended one must give
its quota back. Its shares are deleted only if the API server itself shows that nothing runs on them.
"""

from collections.abc import Iterable

from adapter.objects.rayjob import JobObject, is_running
from adapter.objects.workload import Job, Workload


def has_workload_ended(uid: str, workload: Workload | None) -> bool:
    """Whether the Workload with this uid is gone, finished, or without quota; `workload` is the one of its name now."""
    if workload is None or workload.uid != uid or workload.deleting:
        return True
    return workload.finished or not workload.holds_quota


def has_job_ended(job: Job, jobs: Iterable[JobObject]) -> bool:
    """Whether an elastic job is gone, suspended or finished; `jobs` are all of its namespace and kind."""
    return not any(is_running(job, known) and not known.status.is_finished for known in jobs if known.uid == job.uid)
