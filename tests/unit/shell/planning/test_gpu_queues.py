"""Plans of jobs for the shipped GPU queues: the kind of GPU by a node selector, spot nodes, and the bill."""

from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from hack.lab.base.paths import REPO
from tests.unit.shell.planning.test_preview_of_jobs import asked
from tests.unit.stores import Sight, fill, make_group, make_member, make_ray_job

GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
L4 = "NVIDIA-L4"
OBJECTS: list[Any] = list(yaml.safe_load_all((REPO / "manifests/queues/gpu/worker/queues.yaml").read_text()))
FLAVORS = {each["metadata"]["name"]: each for each in OBJECTS if each["kind"] == "ResourceFlavor"}
(QUEUE,) = (each for each in OBJECTS if each["kind"] == "ClusterQueue")


def make_nodes() -> Iterable[dict[str, Any]]:
    """A node for each flavor, with its labels, and the taint that it tolerates."""
    amounts = {each["name"]: each["resources"] for each in QUEUE["spec"]["resourceGroups"][0]["flavors"]}
    for name, flavor in FLAVORS.items():
        taints = [{**each, "operator": None} for each in flavor["spec"].get("tolerations", ())]
        yield {
            "metadata": {"name": name, "labels": flavor["spec"]["nodeLabels"]},
            "spec": {"taints": [{key: taint[key] for key in ("key", "value", "effect")} for taint in taints]},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "allocatable": {row["name"]: row["nominalQuota"] for row in amounts[name]} | {"pods": "99"},
            },
        }


def sight() -> Sight:
    both = Sight({"east": 1, "west": 1})
    for name, member in both.members.items():
        fill(member.cluster_queues, {**QUEUE, "metadata": {"name": "team-a"}})
        fill(member.flavors, *FLAVORS.values())
        fill(member._node_objects, *make_nodes())
        member.spec = make_member(name, 1, pricePerHour={GPU: "2.50"}).spec
    return both


@pytest.mark.parametrize(
    ("workers", "selector", "sentence", "bill"),
    [
        pytest.param(8, {}, "8 of 8 workers to east.", "20.00", id="one flavor"),
        pytest.param(12, {}, "8 of 12 workers to east, 4 to west.", "30.00", id="one flavor in each cluster"),
        pytest.param(8, {PRODUCT: L4}, "4 of 8 workers to east, 4 to west.", "20.00", id="one kind"),
        pytest.param(10, {PRODUCT: L4}, "10 workers needed at once, 8 fit now: ", None, id="too many of one kind"),
    ],
)
def test_workers_get_gpus_of_their_kind(
    workers: int, selector: dict[str, str], sentence: str, bill: str | None
) -> None:
    requests = {"cpu": "4", "memory": "16Gi", GPU: "1"}
    container = {"name": "ray-worker", "image": "ray", "resources": {"requests": requests, "limits": {GPU: "1"}}}
    group = make_group(workers, template={"spec": {"containers": [container], "nodeSelector": selector}})
    plan = asked(sight(), make_ray_job(group))
    assert (plan["sentence"][: len(sentence)], plan.get("pricePerHour")) == (sentence, bill)
