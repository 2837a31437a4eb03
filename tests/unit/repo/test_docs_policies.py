"""docs/policies.md is true: each sample is the file, and each table is what `plan` prints for it.

The doc describes a fleet in a table. The stores of a controller are filled from it and from the sample objects, and
real plans answer. `pytest --update-golden` rewrites the samples and the tables.
"""

import asyncio
import re
from datetime import timedelta

import pytest
import yaml

from adapter import names
from adapter.cli import plan_table
from adapter.objects import specs
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.planning import ordering
from hack.lab.base.paths import REPO
from tests.unit import builders
from tests.unit.builders import START
from tests.unit.stores import Sight, fill

DOC = REPO / "docs" / "policies.md"
SAMPLES = REPO / "manifests" / "samples" / "policies"
NAMESPACE, QUEUE = "default", "ray"
GIB_PER_CORE = 8
_FENCE = re.compile(r"^```(yaml|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAMPLE = re.compile(r"# manifests/samples/policies/([\w.-]+)\n")
_COMMAND = re.compile(r"\$ kubectl rayspan plan -f ([\w.-]+)\n")
_ROW = re.compile(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", re.MULTILINE)


def test_the_doc_agrees_with_the_files_and_the_planner(request: pytest.FixtureRequest) -> None:
    text = DOC.read_text()
    policy: list[Raw] = []

    def block(found: re.Match[str]) -> str:
        if sample := _SAMPLE.match(found[2]):
            content = (SAMPLES / sample[1]).read_text()
            objects = list(yaml.safe_load_all(content))
            policy[:] = objects if objects[0]["kind"] == names.DISPATCH_POLICY_KIND else policy
            return f"```yaml\n{sample[0]}{content}```"
        if command := _COMMAND.match(found[2]):
            (job,) = yaml.safe_load_all((SAMPLES / command[1]).read_text())
            answer = asyncio.run(_sight(*policy).preview.preview_plan(job, NAMESPACE, START))
            return f"```text\n{command[0]}{plan_table.render(answer)}```"
        return found[0]

    wanted = _FENCE.sub(block, text)
    if request.config.getoption("--update-golden"):
        DOC.write_text(wanted)
    assert text == wanted, "read the difference, then run this test with --update-golden"


def test_every_sample_is_in_the_doc() -> None:
    shown = set(_SAMPLE.findall(DOC.read_text())) | set(_COMMAND.findall(DOC.read_text()))
    assert shown == {path.name for path in SAMPLES.glob("*.yaml")}


def test_the_times_in_the_doc_are_those_of_the_code() -> None:
    assert timedelta(minutes=10) == ordering.STARVED_AFTER
    assert timedelta(minutes=3) == ordering.HOLD_PAUSE
    assert timedelta(minutes=15) == ordering.HOLD_PERIOD
    assert all(said in DOC.read_text() for said in ("ten minutes", "three minutes", "quarter of an hour"))


def _fleet() -> list[Raw]:
    return list(yaml.safe_load_all((SAMPLES / "fleet.yaml").read_text()))


def _sight(policy: Raw, *configs: Raw) -> Sight:
    """The doc's fleet under a policy, with the MultiKueueConfigs that the policy may name."""
    rows = {name: [int(number) for number in numbers] for name, *numbers in _ROW.findall(DOC.read_text())}
    clusters = {key_of(raw)[1]: raw for raw in _fleet()}
    assert rows.keys() == clusters.keys(), "the doc's table and fleet.yaml describe the same clusters"
    sight = Sight(dict.fromkeys(clusters, 0))
    home = sight.manager
    fill(home.local_queues, _local_queue("all"))
    fill(home.worker_clusters, *clusters.values())
    fill(home.policies, policy)
    fill(home.multikueue_configs, *configs)
    fill(home.checks, builders.make_check(policy=policy["metadata"]["name"]))
    for name, (cores, used, lent, nodes) in rows.items():
        member = sight.members[name]
        member.spec = specs.parse_worker_cluster(clusters[name])
        queues = [_cluster_queue(QUEUE, cores, used), _cluster_queue("lender", lent, 0)]
        fill(member.cluster_queues, *queues)
        fill(member.flavors, builders.make_flavor("default"))
        fill(member.local_queues, _local_queue(QUEUE))
        fill(member.namespaces, {"metadata": {"name": NAMESPACE}})
        fill(member._node_objects, *(_node(f"n{index}") for index in range(nodes)))
    return sight


def _local_queue(cluster_queue: str) -> Raw:
    return {"metadata": {"name": QUEUE, "namespace": NAMESPACE}, "spec": {"clusterQueue": cluster_queue}}


def _cluster_queue(name: str, cores: int, used: int) -> Raw:
    def amounts(key: str, number: int) -> list[Raw]:
        return [{"name": "cpu", key: str(number)}, {"name": "memory", key: f"{number * GIB_PER_CORE}Gi"}]

    quotas = [{"name": "default", "resources": amounts("nominalQuota", cores)}]
    return {
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "cohortName": "all",
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": quotas}],
        },
        "status": {"flavorsReservation": [{"name": "default", "resources": amounts("total", used)}]},
    }


def _node(name: str) -> Raw:
    allocatable = {"cpu": "8", "memory": f"{8 * GIB_PER_CORE}Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name}, "status": {"conditions": [ready], "allocatable": allocatable}}
