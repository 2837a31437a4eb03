"""Submits jobs that KubeRay rejects, beside the gangs: they cost the gangs nothing, and hold no quota in the end.

The API server and Kueue accept such a job. It stands until the next fault, and is judged with the gangs.
"""

from collections.abc import Callable, Mapping

from hack.testbed.kuberay_refusals import KUBERAY_REFUSALS, refused_job
from hack.testbed.reader import Raw
from hack.testbed.stage import ray_cluster
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground

_WORKERS = 2


def rejected_job(namespace: str, fault: Fault) -> Raw:
    """The job of a fault: each of the known reasons to be rejected comes in its turn."""
    refusal = KUBERAY_REFUSALS[fault.pick % len(KUBERAY_REFUSALS)]
    job = refused_job(ray_cluster("rejected", namespace, {"workers": _WORKERS}), refusal)
    job["metadata"]["name"] += f"-{fault.number:04}"  # unique, since the last one may still be leaving
    return job


def _submit(ground: Ground, fault: Fault) -> str:
    return ground.load.submit_rejected(rejected_job(ground.stage.name, fault))


DEEDS: Mapping[str, Callable[[Ground, Fault], str]] = {"job-rejected": _submit}
