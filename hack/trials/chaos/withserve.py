"""Checks that a RayService with real Ray answers after faults, and sends requests to living workers alone.

The struck gangs run on fake nodes, where no RayService gets ready: KubeRay asks the head's dashboard for Serve's state,
which does not run there, so it makes no Service, and no upgrade ends. Therefore one with Ray stands beside them, and
what is killed, cut and restored is under it too. Failed requests meanwhile are neither reported nor judged:
hack/trials/serving measures those. Judged is that in the end no worker runs twice, is missing or is an orphan, and that
every address leads to a worker.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from adapter import names
from adapter.objects.unstructured import is_condition_true, label, meta, uid_of
from hack.lab.base.progress import LabError, step
from hack.testbed import rayservice
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.rayservice import RayService
from hack.testbed.reader import Raw
from hack.trials.outages import Outages
from hack.trials.sampler import CopySampler

_NAME = "chaos-serve"
_WORKERS = 2  # one in each worker cluster
# Ray gives a node up after a minute, a replica starts after its worker, and KubeRay polls a head that did not answer
# with growing delays.
_PATIENCE = 240.0
_ANSWERS = 20  # in a row, in the end


@contextmanager
def beside(fleet: Clusters, outages: Outages) -> Iterator[None]:
    """Run it within the context; raises LabError at the end if it did not end well.

    `outages` are noted by those who cause them.
    """
    service = RayService(fleet, _NAME)
    with rayservice.dispatched(fleet), rayservice.led_straight(fleet.manager):
        try:
            with step(f"RayService {_NAME}: until it answers"):
                service.apply("one")
                service.wait_until_ready()
                wait(lambda: not _wrong(service), _PATIENCE, "both of its workers get requests", service.dump)
            with CopySampler(list(fleet.workers.values()), NAMESPACE, outages) as sampler:
                yield
                _end(service)
            if doubled := sampler.lives.doubled():
                raise LabError(f"Of RayService {_NAME}: {doubled}.")
        finally:
            service.delete()


def _end(service: RayService) -> None:
    wait(
        lambda: not _wrong(service),
        _PATIENCE,
        f"all is well with {_NAME}",
        lambda: f"{_wrong(service)} {service.dump()}",
    )
    with rayservice.asked(service) as asker:
        asker.wait(
            "it answers, and nobody fails", lambda said: len(said) >= _ANSWERS and _well(said[-_ANSWERS:]), _PATIENCE
        )
    print(f"RayService {_NAME}: answers, and its {_WORKERS} workers get requests")


def _well(said: Iterable[Mapping[str, object]]) -> bool:
    return all(one["code"] == 200 for one in said)


def _wrong(service: RayService) -> list[str]:
    """The violations in the end, a fragment each."""
    manager, jobs = service.fleet.manager, {str(meta(one)["name"]) for one in service.ray_clusters()}
    pods = manager.items("pods", NAMESPACE, f"{names.RAY_NODE_TYPE_LABEL}=worker")
    mine = [pod for pod in pods if label(pod, names.RAY_GCS_CLUSTER_LABEL) in jobs]
    copies = {
        name: worker.items("pods", NAMESPACE, names.MANAGER_LABEL) for name, worker in service.fleet.workers.items()
    }
    of_service = (
        f"{names.SERVICE_NAME_LABEL}={_NAME}-serve-svc,{names.SLICE_MANAGED_BY_LABEL}={names.SERVING_SLICES_MANAGER}"
    )
    slices = manager.items("endpointslices", NAMESPACE, of_service)
    ready = [pod for pod in mine if is_condition_true(pod, "Ready")]
    lost = (
        [f"{len(ready)} workers are ready, and {_WORKERS} must be"]
        if len(ready) != _WORKERS or len(mine) != _WORKERS
        else []
    )
    return [*lost, *orphans(mine, copies), *astray(ready, slices)]


def orphans(workers: Iterable[Raw], copies: Mapping[str, Collection[Raw]]) -> list[str]:
    """Copies of this service's workers, by cluster, that stand for none of those that are there."""
    known = {uid_of(pod) for pod in workers}
    return [
        f"pod {meta(copy)['name']} in {cluster} stands for no worker"
        for cluster, found in copies.items()
        for copy in found
        if label(copy, names.REMOTE_RAY_CLUSTER_LABEL).startswith(_NAME)
        and label(copy, names.POD_UID_LABEL) not in known
    ]


def astray(ready: Iterable[Raw], slices: Iterable[Raw]) -> list[str]:
    """The faults of our slices: an address with requests that is no ready worker's, or a ready worker without one."""
    led = {
        (str((one.get("targetRef") or {}).get("uid")), address)
        for found in slices
        for one in found.get("endpoints") or ()
        if (one.get("conditions") or {}).get("ready")
        for address in one.get("addresses") or ()
    }
    wanted = {(uid_of(pod), str((pod.get("status") or {}).get("podIP"))) for pod in ready}
    said = [f"address {address} gets requests, and is no ready worker's" for _, address in sorted(led - wanted)]
    return said + [f"the worker at {address} gets no requests" for _, address in sorted(wanted - led)]
