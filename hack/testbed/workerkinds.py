"""A RayCluster with every kind of worker that people write, and a program that asks Ray where it ran.

Two groups: `plain` has two sidecars, `gpu` has a GPU and an image of its own; both have a user's start command.
"""

import yaml

from hack.lab.cluster.node import GPU
from hack.testbed import rayspec
from hack.testbed.rayjob import NAMESPACE, SAMPLE
from hack.testbed.reader import Raw

NAME = "kinds"
OTHER_IMAGES = "gpu.example.com"  # stands for a registry that does not exist
# It ends at once on SIGTERM, and is ready when it has reached the head by the name that it has in the manager.
SIDECAR = f"""
trap 'exit 0' TERM
until (exec 3<>/dev/tcp/{NAME}-head-svc/6379) 2>/dev/null; do sleep 1 & wait $!; done
touch /tmp/reached
sleep infinity & wait
"""
# A resource of the user's own shows that this command ran. Neither names an address.
STARTS = {
    "plain": """ray start --block --address="$RAY_ADDRESS" --num-cpus=2 --resources='{"own-start": 1}'""",
    "gpu": """eval "$KUBERAY_GEN_RAY_START_CMD" """,
}
# Prints the nodes, and where tasks with a placement ran.
PROGRAM = """
import json
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

ZONE = "ray.io/availability-zone"

@ray.remote(num_cpus=0.1)
def where():
    return ray.get_runtime_context().get_node_id()

ray.init(logging_level="ERROR")
zones = ("east", "west")
asked = {f"label {zone}": where.options(label_selector={ZONE: zone}).remote() for zone in zones}
asked |= {f"resource {zone}": where.options(resources={f"zone:{zone}": 0.01}).remote() for zone in zones}
asked |= {"gpu": where.options(num_gpus=1).remote(), "own start": where.options(resources={"own-start": 0.1}).remote()}
ran = {what: ray.get(task, timeout=60) for what, task in asked.items()}
group = ray.util.placement_group(
    [{"GPU": 1, "CPU": 0.1} for _ in zones], strategy="SPREAD", bundle_label_selector=[{ZONE: zone} for zone in zones]
)
ray.get(group.ready(), timeout=60)
bundles = {f"bundle {zone}": where.options(num_gpus=1, scheduling_strategy=In(group, at)).remote() \
for at, zone in enumerate(zones)}
ran |= {what: ray.get(task, timeout=60) for what, task in bundles.items()}
print(json.dumps({"nodes": [node for node in ray.nodes() if node["Alive"]], "ran": ran}))
"""


def raycluster() -> Raw:
    """The sample's RayCluster without its program, with these worker groups instead."""
    rayjob = next(o for o in yaml.safe_load_all(SAMPLE.read_text()) if o["kind"] == "RayJob")
    spec = rayjob["spec"]["rayClusterSpec"]
    template = spec["headGroupSpec"]["template"]["spec"]
    template.pop("volumes")
    template["containers"][0].pop("volumeMounts")
    image = template["containers"][0]["image"]
    plain = _group("plain", image, {})
    sidecars = [_sidecar("sidecar", image), {**_sidecar("native-sidecar", image), "restartPolicy": "Always"}]
    plain["template"]["spec"]["containers"].append(sidecars[0])
    plain["template"]["spec"]["initContainers"] = [sidecars[1]]
    gpu = _group("gpu", f"{OTHER_IMAGES}/{image.rpartition('/')[2]}", {GPU: "1"})
    gpu["template"]["metadata"] = {"annotations": {"ray.io/overwrite-container-cmd": "true"}}
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": rayjob["metadata"]["labels"]}
    whole = {**spec, "workerGroupSpecs": [plain, gpu]}
    rayspec.soon_ready(whole)
    return {"apiVersion": rayjob["apiVersion"], "kind": "RayCluster", "metadata": metadata, "spec": whole}


def _group(name: str, image: str, devices: Raw) -> Raw:
    resources = {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "2Gi", **devices}}
    container = {"name": "ray-worker", "image": image, "command": ["bash", "-c"], "args": [STARTS[name]]}
    counts = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), 2)
    template = {"spec": {"containers": [{**container, "resources": resources}]}}
    return {"groupName": name, **counts, "rayStartParams": {}, "template": template}


def _sidecar(name: str, image: str) -> Raw:
    probe = {"exec": {"command": ["test", "-e", "/tmp/reached"]}, "periodSeconds": 1}
    requests = {"requests": {"cpu": "50m", "memory": "32Mi"}}
    return {
        "name": name,
        "image": image,
        "command": ["bash", "-c", SIDECAR],
        "readinessProbe": probe,
        "resources": requests,
    }
