"""Helm installs the chart on a real cluster as docs/install.md says, and its controller works there until Helm removes
it.

The manager of these tests has what kubectl applied. So a worker cluster becomes a manager of its own for a while, with
KubeRay's kinds and without KubeRay, beside what `join` made, which must stay. No job runs there: all other tests run
jobs with the same objects (tests/unit/repo/test_release.py). The chart's queues are tried on the manager's API server
only, for the worker cluster has a queue of that name. The chart's alerts need kinds that no cluster here has.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
import yaml

from adapter import names
from hack.lab.base import lab as definition
from hack.lab.base.paths import REPO
from hack.lab.build import tools
from hack.lab.cluster import containerd
from hack.lab.images import images
from hack.release import __main__ as release
from hack.release import overlays, values
from hack.testbed import install, multikueue
from hack.testbed.clusters import Cluster, Clusters, condition
from hack.testbed.reader import Raw

pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
]  # building Helm takes minutes; nobody else's worker may be in that cluster

_PATIENCE = 120.0  # seconds; Helm waits for the controller's pods
_DOC = (REPO / "docs/install.md").read_text()
_LINES = "".join(re.findall(r"^```sh\n(.*?)^```$", _DOC, re.MULTILINE | re.DOTALL)).replace("\\\n", "").splitlines()
_INSTALL, _CHANGE = (line for line in _LINES if line.startswith("helm "))
(_REMOVE,) = re.findall(r"`(helm uninstall [^`]+)`", _DOC)
_IMAGE = " --set controllerManager.manager.image.tag=dev"  # the release's own is in no registry
_ANY_IMAGE = "rayspan/rayspan:dev"  # of objects of which only kinds and names are read
_RELAY_IMAGE = " --set relay.image.tag=dev"
_QUEUES = ("shared-flavor", "local-remote")
# In a worker cluster by themselves, with the values that they need; monitoring needs the Prometheus operator's kinds.
_SWITCHED = [part for part in overlays.COMPONENTS if part.name not in (*_QUEUES, overlays.MONITORING.name)]
_SECRETS = f"{values.MULTIKUEUE_SECRETS}={{east,west}}"

Helm = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def helm(fleet: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cluster], Helm]:
    """Helm's command lines, as the page has them: its context `manager` is the cluster that is asked for."""
    tools.build(["helm"])
    home = tmp_path_factory.mktemp("helm")

    def of(cluster: Cluster) -> Helm:
        config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
        config["contexts"][0]["name"] = config["current-context"] = "manager"
        file = home / f"{cluster.name}.json"
        file.write_text(json.dumps(config))
        path = f"{tools.path('helm').parent}:/usr/bin:/bin"
        environment = {"PATH": path, "HOME": str(home), "KUBECONFIG": str(file), "CHART": str(release.CHART)}
        return lambda line: _ran(line, environment)

    return of


@pytest.fixture
def west(fleet: Clusters) -> Iterator[Cluster]:
    """A worker cluster that can be a manager, with the images of the checkout; nothing of that is left in it."""
    cluster = fleet.workers["west"]
    _, archive = images.prepare("rayspan")
    containerd.bring(definition.load().cluster("west"), "rayspan", archive)
    containerd.bring(definition.load().cluster("west"), "relay", images.archive_for("relay"))
    with ExitStack() as stack:
        stack.callback(cluster.delete, "lease", names.LEASE, names.SYSTEM_NAMESPACE)
        stack.enter_context(multikueue.ray_known(fleet.manager, cluster))
        yield cluster


def test_the_chart_installs_works_changes_and_goes(helm: Callable[[Cluster], Helm], west: Cluster) -> None:
    """By the page's own lines: a controller that leads and reads a policy, then other values and each component,
    then nothing."""
    run, before = helm(west), _accounts(west)
    try:
        said = _fine(run(_INSTALL + _IMAGE))
        assert "STATUS: deployed" in said and "kubectl rayspan join NAME" in said
        assert not _missing(west, _manager())
        west.wait(lambda: install.leader(west) in _ready(west), 60, "a pod of the chart's leads")
        west.apply(yaml.safe_dump(_policy()))
        west.wait(lambda: _judged(west).get("reason") == "UnknownCluster", 60, "it judges a policy")

        switches = "".join(f" --set {values.switch_of(part)}=true" for part in _SWITCHED)
        _fine(run(f"{_CHANGE}{_IMAGE}{_RELAY_IMAGE}{switches} --set '{_SECRETS}' --wait"))
        switched = [*_manager(), *(one for part in _SWITCHED for one in overlays.objects(part, _ANY_IMAGE))]
        missing = {one["kind"]: one["metadata"]["name"] for one in _missing(west, switched)}
        policies = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
        assert missing == dict.fromkeys(policies, names.GATE_POLICY), "the webhook is in their place"
        pod = west.get("deployment", install.CONTROLLER, names.SYSTEM_NAMESPACE)["spec"]["template"]["spec"]
        assert pod["priorityClassName"] == "system-cluster-critical"
        assert pod["containers"][0]["resources"]["limits"]["memory"] == "2Gi"

        _fine(run(f"{_INSTALL}{_IMAGE} --reset-values"))
        assert not _missing(west, _manager())
        for part in _SWITCHED:
            there = {_called(one) for one in overlays.objects(part, _ANY_IMAGE)} - {_called(one) for one in _manager()}
            assert there and {_called(one) for one in _missing(west, overlays.objects(part, _ANY_IMAGE))} >= there, (
                part.name
            )
    finally:
        run(f"{_REMOVE} --ignore-not-found --wait")
    left = [_called(one) for one in _manager() if one["kind"] != "Namespace" and _there(west, one)]
    assert left == []
    assert _accounts(west) == before, "what `join` made there is not Helm's"


def test_helm_does_not_take_over_what_kubectl_applied(helm: Callable[[Cluster], Helm], fleet: Clusters) -> None:
    """And says so before it has written anything."""
    manager = fleet.manager
    before = _version(manager)
    done = helm(manager)(_INSTALL + _IMAGE)
    assert done.returncode and "cannot be imported into the current release" in done.stderr, done.stderr
    assert _version(manager) == before
    assert not manager.items("secrets", names.SYSTEM_NAMESPACE, "owner=helm")


@pytest.mark.parametrize("layout", _QUEUES)
def test_the_charts_queues_are_what_the_api_server_takes(
    helm: Callable[[Cluster], Helm], fleet: Clusters, layout: str
) -> None:
    """Asked of the manager's, with all that it checks; nothing is kept."""
    (part,) = (part for part in overlays.COMPONENTS if part.name == layout)
    switch = f" --set {values.switch_of(part)}=true"
    rendered = _fine(helm(fleet.manager)(f"helm template rayspan $CHART --kube-version {_kubernetes(fleet)}{switch}"))
    chosen = {_called(one) for one in overlays.objects(part, _ANY_IMAGE)} - {_called(one) for one in _manager()}
    asked = [one for one in yaml.safe_load_all(rendered) if one and _called(one) in chosen]
    how = (
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-o",
        "name",
        "-f",
        "-",
    )
    said = fleet.manager.kubectl(*how, input=yaml.safe_dump_all(asked)).split()
    assert len(said) == len(asked) == len(chosen) > 0


# --- Helm -------------------------------------------------------------------------------------------------------------


def _ran(line: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )


def _fine(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- what is there ----------------------------------------------------------------------------------------------------


def _manager() -> list[Raw]:
    return overlays.objects(overlays.MANAGER, _ANY_IMAGE)


def _called(one: Raw) -> tuple[str, str, str]:
    kind = f"{one['kind'].lower()}.{one['apiVersion'].rpartition('/')[0]}".rstrip(".")
    return kind, one["metadata"].get("namespace") or "", one["metadata"]["name"]


def _missing(cluster: Cluster, objects: Sequence[Raw]) -> list[Raw]:
    return [one for one in objects if not _there(cluster, one)]


def _there(cluster: Cluster, one: Raw) -> bool:
    kind, namespace, name = _called(one)
    where = ("-n", namespace) if namespace else ()
    return bool(cluster.kubectl(*where, "get", kind, name, "--ignore-not-found", "-o", "name"))


def _accounts(cluster: Cluster) -> list[str]:
    kinds = "serviceaccounts,roles,rolebindings"
    mine = cluster.kubectl("-n", names.SYSTEM_NAMESPACE, "get", kinds, "-o", "name").split()
    return sorted([*mine, *cluster.kubectl("get", "clusterroles,crds", "-o", "name").split()])


def _ready(cluster: Cluster) -> list[str]:
    pods = cluster.items("pods", names.SYSTEM_NAMESPACE, install.PODS)
    return [pod["metadata"]["name"] for pod in pods if condition(pod, "Ready").get("status") == "True"]


def _policy() -> Raw:
    body = {"apiVersion": names.API_VERSION, "kind": names.DISPATCH_POLICY_KIND, "metadata": {"name": "it-helm"}}
    return {**body, "spec": {"clusters": {"names": ["nowhere"]}}}


def _judged(cluster: Cluster) -> Raw:
    return condition(cluster.get("dispatchpolicies", "it-helm"), names.READY)


def _version(cluster: Cluster) -> str:
    found = cluster.get("deployment", install.CONTROLLER, names.SYSTEM_NAMESPACE)["metadata"]
    return f"{found['uid']} {found['generation']} {found.get('labels')}"


def _kubernetes(fleet: Clusters) -> str:
    return str(json.loads(fleet.manager.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"])
