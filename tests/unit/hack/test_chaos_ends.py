"""The end of a process of ours is a crash unless the trial killed it or cost it the Lease; evidence is read in time."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapter.objects.unstructured import RawDict as Raw
from hack.lab.base.lab import MANAGER
from hack.lab.base.lab import Cluster as Home
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Unreachable
from hack.trials.chaos import ends, helping, settling
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ends import RESIGNED, Book
from hack.trials.chaos.ground import Ground
from hack.trials.chaos.helping import Help
from hack.trials.chaos.restarts import Container


def fault(kind: str, where: str = "", *, lasts: float = 0.0, moment: str = "") -> Fault:
    return Fault(1, kind, where, "", lasts, moment, False, 0)


# --- what a pod shows -------------------------------------------------------------------------------------------------


def over(container: str, code: int = 137, reason: str = "Error") -> Raw:
    return {"terminated": {"containerID": f"containerd://{container}", "exitCode": code, "reason": reason}}


RUNS: Raw = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
BACK_OFF: Raw = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(
    container: str, state: Raw, last: Raw | None = None, *, restarts: int = 0, name: str = "a", leaves: bool = False
) -> Raw:
    status = {
        "containerID": f"containerd://{container}",
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }
    leaving = {"deletionTimestamp": "2026-01-02T03:04:05Z"} if leaves else {}
    return {"metadata": {"name": name, "uid": f"uid-{name}", **leaving}, "status": {"containerStatuses": [status]}}


@pytest.mark.parametrize(
    ("shown", "count", "last"),
    [
        pytest.param({"metadata": {"name": "a", "uid": "u"}}, 0, "", id="no container yet"),
        pytest.param(
            pod("", {"waiting": {"reason": "ContainerCreating"}}),
            0,
            "",
            id="a container that is being created",
        ),
        pytest.param(pod("c0", RUNS), 0, "", id="a running container"),
        pytest.param(pod("c0", over("c0")), 1, "c0", id="a container that has just ended"),
        pytest.param(pod("c0", BACK_OFF, over("c0")), 1, "c0", id="a container in back-off"),
        pytest.param(pod("c1", RUNS, over("c0"), restarts=1), 1, "c0", id="a restarted container"),
        pytest.param(pod("c1", BACK_OFF, over("c1"), restarts=1), 2, "c1", id="a restarted container in back-off"),
        pytest.param(pod("c1", over("c1"), over("c0"), restarts=1), 2, "c1", id="a restarted container that has ended"),
    ],
)
def test_the_number_of_ended_processes(shown: Raw, count: int, last: str) -> None:
    found = ends.read(shown)
    assert (found.ends, found.last) == (count, last)


@pytest.mark.parametrize(
    ("ended", "kills", "resigned", "excuses", "want"),
    [
        pytest.param(0, 0, 0, 0, 0, id="no end"),
        pytest.param(2, 2, 0, 0, 0, id="all ends are kills"),
        pytest.param(1, 2, 0, 0, 0, id="a kill that the kubelet has not noticed"),
        pytest.param(3, 2, 0, 0, 1, id="one end more than kills"),
        pytest.param(3, 2, 1, 1, 0, id="a fault cost the process its Lease"),
        pytest.param(3, 2, 1, 0, 1, id="the process lost its Lease without a fault"),
        pytest.param(4, 2, 2, 1, 1, id="one fault excuses one end"),
        pytest.param(3, 2, 0, 1, 1, id="a fault excuses no process that did not report the loss"),
        pytest.param(4, 2, 1, 5, 1, id="more ends than reported losses"),
    ],
)
def test_unexplained_ends(ended: int, kills: int, resigned: int, excuses: int, want: int) -> None:
    assert ends.unexplained(ended, kills, resigned, excuses) == want


@pytest.mark.parametrize(
    ("struck", "want"),
    [
        pytest.param(fault("controller-stopped", lasts=12.0), True, id="the controller stopped for long"),
        pytest.param(fault("controller-stopped", lasts=0.5), False, id="the controller stopped for a moment"),
        pytest.param(
            fault("apiserver-killed", MANAGER, lasts=0.5), True,
            id="the manager's API server takes ten seconds to start",
        ),
        pytest.param(fault("etcd-killed", MANAGER, lasts=0.5), True, id="the manager's etcd killed"),
        pytest.param(fault("apiserver-killed", "east", lasts=5.0), False, id="another cluster's API server killed"),
        pytest.param(fault("controller-killed"), False, id="a killed controller counts as a kill"),
        pytest.param(fault("kubelet-killed", MANAGER, lasts=9.0), False, id="a killed kubelet"),
    ],
)  # fmt: skip
def test_faults_that_may_cost_the_lease(struck: Fault, want: bool) -> None:
    assert ends.may_cost_the_lease(struck) is want


# --- the book ---------------------------------------------------------------------------------------------------------

LEASE = f"2026-01-02 ERROR adapter {RESIGNED}it was not renewed for 10 s: no answer in time"


def written(*looks: tuple[Sequence[Raw], str], killed: Sequence[str] = (), excuses: int = 0) -> list[str]:
    """The reports after some looks, each with the last words of ended containers. Pod `a` ran before."""
    book = Book(excuses=excuses)
    book.begin([pod("c0", RUNS)])
    for pods, said in looks:
        for look in book.news(pods):
            book.note(look, said, killed)
        book.saw(pods)
    return book.crashes("the controller", killed)


AGAIN = pod("c1", RUNS, over("c0", 1), restarts=1)


@pytest.mark.parametrize(
    ("looks", "killed", "excuses", "want"),
    [
        pytest.param([([pod("c0", RUNS)], "")], [], 0, "", id="a controller that runs on"),
        pytest.param([([AGAIN], "")], ["c0"], 0, "", id="a killed controller"),
        pytest.param(
            [([AGAIN], "")], [], 0, "1 of 1 ends of the controller are not explained: the trial killed 0",
            id="a crashed controller",
        ),
        pytest.param([([AGAIN], LEASE)], [], 1, "", id="a Lease lost by a fault"),
        pytest.param([([AGAIN], LEASE)], [], 0, "are not explained", id="a Lease lost without a fault"),
        pytest.param([([AGAIN], f"{LEASE}\n")], ["c0"], 0, "", id="a killed controller with an earlier Lease message"),
        pytest.param(
            [([pod("c1", RUNS, over("c0", 139), restarts=1)], LEASE)], [], 1, "exit code 139",
            id="an exit code that contradicts the Lease message",
        ),
        pytest.param(
            [([AGAIN], "WARNING Lease rayspan-controller in rayspan-system cannot be read")], [], 1, "not explained",
            id="a warning about the Lease that is no loss",
        ),
        pytest.param(
            [([pod("c3", RUNS, over("c2", 1), restarts=3)], LEASE)], [], 3, "2 of 3 ends",
            id="two more ends that were not observed",
        ),
        pytest.param([([AGAIN], LEASE), ([AGAIN], "")], [], 1, "", id="the last words are read once for each end"),
        pytest.param(
            [([AGAIN], ""), ([pod("c0", RUNS)], "")], [], 0, "not explained", id="an old answer does not undo an end",
        ),
        pytest.param([([], "")], [], 0, "pod a of the controller is gone", id="a pod that the trial did not delete"),
        pytest.param(
            [([pod("c0", RUNS), pod("d9", RUNS, over("d8"), restarts=9, name="b", leaves=True)], "")], [], 0, "",
            id="a pod that was being deleted before",
        ),
        pytest.param(
            [([pod("c0", RUNS), pod("d1", RUNS, over("d0", 2), restarts=1, name="b")], "")], [], 0, "exit code 2",
            id="a pod that was created later",
        ),
    ],
)  # fmt: skip
def test_the_reports_of_the_book(
    looks: list[tuple[list[Raw], str]], killed: list[str], excuses: int, want: str
) -> None:
    said = written(*looks, killed=killed, excuses=excuses)
    assert len(said) == bool(want)
    assert want in "".join(said)


def test_ends_before_the_trial_do_not_count() -> None:
    book = Book()
    book.begin([pod("c4", RUNS, over("c3", 1), restarts=4)])
    assert book.news([pod("c4", RUNS, over("c3", 1), restarts=4)]) == []
    assert book.ends() == 0


# --- evidence before help ---------------------------------------------------------------------------------------------


class Manager(Cluster):
    """A cluster with one pod that records requests in order."""

    def __init__(self, pods: list[Raw], *, silent: bool = False) -> None:
        super().__init__("mgr", Path("none"))
        self.__dict__.update(pods=pods, done=[], silent=silent)

    def items(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[Raw]:
        found: list[Raw] = self.__dict__["pods"]
        return found

    def delete(self, kind: str, name: str, namespace: str = "default", *, wait: bool = True) -> None:
        self.__dict__["done"].append(f"delete {name}")

    @property
    def reader(self) -> Any:
        return self

    def path(self, kind: str, name: str, namespace: str) -> str:
        return f"/{name}"

    def text(self, path: str, query: dict[str, str], accept: str = "") -> str:
        if self.__dict__["silent"]:
            raise Unreachable("no answer")
        self.__dict__["done"].append(f"log {'previous' if 'previous' in query else 'now'}")
        return LEASE


def a_container(manager: Manager) -> Container:
    nowhere = Home("nowhere", 0)  # no cluster of the lab, because the processes of this cluster are ended
    return Container("the controller", manager, nowhere, "ns", "x=y", lambda _: "a")


def test_evidence_is_read_before_a_pod_is_deleted() -> None:
    manager = Manager([pod("c0", RUNS)])
    container = a_container(manager)
    container.begin()
    manager.__dict__["pods"] = [pod("c0", BACK_OFF, over("c0", 1))]
    assert container.mend() == 1
    assert manager.__dict__["done"] == ["log now", "log previous", "delete a"]
    manager.__dict__["pods"] = [pod("d0", RUNS, name="b")]
    container.take_evidence()
    assert container.book.ends() == 1, "the end is counted, though the pod is gone"
    assert "1 lost their Lease, for which 0 faults" in "".join(container.crashes())


def test_nothing_is_deleted_while_its_evidence_cannot_be_read() -> None:
    manager = Manager([pod("c0", RUNS)])
    container = a_container(manager)
    container.begin()
    manager.__dict__.update(pods=[pod("c0", BACK_OFF, over("c0", 1))], silent=True)
    with pytest.raises(Unreachable):
        container.mend()
    assert manager.__dict__["done"] == [] and container.book.ends() == 0, "it is asked again"


@pytest.mark.parametrize(
    ("pods", "killed"),
    [
        pytest.param([pod("c0", RUNS)], {"c0"}, id="a running container"),
        pytest.param([pod("c0", RUNS), pod("d0", RUNS, name="b")], {"c0", "d0"}, id="the standby controller too"),
        pytest.param([pod("c0", BACK_OFF, over("c0", 1))], set(), id="a controller that has already ended"),
        pytest.param([], set(), id="no controller"),
    ],
)
def test_running_controllers_are_ended_before_a_restore(pods: list[Raw], killed: set[str]) -> None:
    container = a_container(Manager(pods))
    container.end()
    assert container.killed == killed


# --- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("struck", "want"),
    [
        pytest.param([], Help(1, 1, 1, 1, 1, 1), id="one of each without faults"),
        pytest.param([fault("scaled")] * 6, Help(3, 1, 1, 1, 1, 1), id="KubeRay forgets at most one of three"),
        pytest.param(
            [fault("apiserver-killed", MANAGER, lasts=3.0)], Help(1, 4, 5, 1, 1, 1),
            id="an outage costs Leases and processes",
        ),
        pytest.param(
            [fault("etcd-killed", "east", lasts=3.0)], Help(1, 2, 5, 1, 1, 1),
            id="an outage of a worker cluster costs Kueue's processes alone",
        ),
        pytest.param(
            [fault("etcd-restored", "east", lasts=3.0)] * 2, Help(1, 3, 9, 1, 1, 1),
            id="a restored cluster restarts its processes",
        ),
        pytest.param(
            [fault("kubeconfig-swapped", "east", lasts=3.0)] * 3, Help(2, 1, 1, 1, 1, 1), id="an unreachable cluster",
        ),
        pytest.param([fault("controller-killed")] * 2, Help(1, 3, 1, 1, 1, 1), id="killed controllers"),
        pytest.param(
            [fault("copy-deleted", "east", moment="placed")] * 20, Help(1, 1, 1, 5, 3, 1),
            id="faults at a chosen moment",
        ),
        pytest.param(
            [fault("shrunk")] * 8, Help(1, 1, 1, 1, 1, 3),
            id="at most one of four named workers was replaced",
        ),
    ],
)  # fmt: skip
def test_the_most_help_that_faults_may_need(struck: list[Fault], want: Help) -> None:
    assert helping.most(struck) == want


@pytest.mark.parametrize("kind", ["reminders", "pods", "processes", "missed", "nobody", "surplus"])
def test_help_beyond_its_bound_is_a_failure(kind: str) -> None:
    assert helping.excess(Help(2, 2, 2, 2, 2, 2), Help(2, 2, 2, 2, 2, 2)) == []
    (said,) = helping.excess(Help(**{kind: 3}), Help(2, 2, 2, 2, 2, 2))
    assert said.startswith("3 ") and said.endswith("are more than these faults explain: 2")


# --- settling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", [False, True], ids=["the manager answers", "the manager is silent"])
def test_evidence_is_read_first_and_missing_evidence_does_not_stop_help(silent: bool) -> None:
    done: list[str] = []

    def take_evidence() -> None:
        done.append("evidence")
        if silent:
            raise Unreachable("no answer")

    def trouble() -> str:
        done.append("help")
        return "etcd of mgr had ended"

    ground = SimpleNamespace(controller=SimpleNamespace(take_evidence=take_evidence), trouble=trouble)
    assert settling._judge(cast(Ground, ground)) == ("etcd of mgr had ended", [], None)
    assert done == ["evidence", "help"]


def test_missing_evidence_is_a_failure() -> None:
    def take_evidence() -> None:
        raise Unreachable("no answer")

    ground = SimpleNamespace(controller=SimpleNamespace(take_evidence=take_evidence), trouble=lambda: "")
    assert settling._judge(cast(Ground, ground)) == ("an API server does not answer (no answer)", [], None)
