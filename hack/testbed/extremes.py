"""Draws RayJobs and RayClusters that a malicious or careless tenant may submit, from their CRD's own schema.

An object drawn as a whole is nearly always rejected by the API server and proves little. So a plain job is the base,
and one to three of its places get an extreme. That is any value that the schema allows there (empty, huge, many,
unicode, negative, absent), or one of those here that no schema knows (a label of ours, a number of workers, a claim).
All of them carry the queue's label. Nothing is submitted or judged here.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from hack.testbed.stage import FAKE_NODE, TOLERATION, ray_cluster

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]

KINDS: Final = ("RayCluster", "RayJob")
# Of one extreme, as JSON: with three of them an object still fits into etcd, which is Kubernetes' limit (1.5 MB).
MOST_BYTES: Final = 400_000

# The shortest comes first: Hypothesis shrinks towards it.
TEXTS: Final = (
    "", "x", "default", "head", "-1", "../../other/secrets/x", "a" * 64, "a" * 254, "ß…é\u200d\u202e\u0301🦖",
    "two\nlines.\n", "\u0000\u0007",
    "{{ .Values }} %s {0} ${HOME} $(RAY_IP)", "long " * 4_000, "x" * 100_000,
)  # fmt: skip
NUMBERS: Final = (0, 1, -1, 2, 18, 300, 10_001, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
QUANTITIES: Final = (
    "1", "0", 0, "-1", -1, "1n", "0.0000000001", "500m", "1e3", "1Ei", "1e402", "-1e402", "1e-402", "9" * 70,
    2**63 - 1, 2**63, ".5", "lots", "",
)  # fmt: skip
KEYS: Final = (
    "x", "cpu", "nvidia.com/gpu", "", "example.com/x", "a" * 64, "ß…é", "two\nlines", names.PLACEMENT_LABEL,
    names.CLUSTER_LABEL, names.LOCK_NODE_SELECTOR,
    names.POOL_LABEL, names.RAY_NODE_TYPE_LABEL, names.QUEUE_LABEL, f"{names.DOMAIN}/{'x' * 2_000}",
    "kubernetes.io/hostname",
)  # fmt: skip
COUNTS: Final = (
    0,
    1,
    2,
    17,
    40,
    600,
    5_000,
)  # a count: a handful, one beyond our limit, one beyond reason
_DEEPEST: Final = 3  # to this depth below a place optional fields are drawn as well


def _deep(levels: int) -> Any:
    found: Any = "x"
    for _ in range(levels):
        found = {"x": [found]}
    return found


DEEP: Final = tuple(_deep(levels) for levels in (1, 40, 150))


def repeated(one: Any, count: int, keys: Sequence[str] = ()) -> list[Any]:
    """So many of one thing, as far as an object may hold them; `keys` are its fields of which each has another text."""
    size = len(json.dumps(one)) + 8 * len(keys) + 2
    numbered = [key for key in keys if isinstance(one, dict) and isinstance(one.get(key, ""), str)]
    return [
        {**one, **{key: f"{one.get(key, '')}{number or ''}" for key in numbered}} if numbered else one
        for number in range(min(count, MOST_BYTES // size))
    ]


@st.composite
def values(draw: st.DrawFn, schema: Schema, depth: int = _DEEPEST) -> Any:
    """Values for a place of this schema: nearly always of its type, however extreme."""
    if schema.get("x-kubernetes-int-or-string"):
        return draw(st.sampled_from(QUANTITIES))
    if schema.get("enum") and draw(st.integers(0, 4)):
        return draw(st.sampled_from(sorted(schema["enum"], key=str)))
    match schema.get("type"):
        case "string":
            return draw(st.sampled_from(TEXTS))
        case "integer" | "number":
            edges = [schema[edge] for edge in ("minimum", "maximum") if edge in schema]
            return draw(st.sampled_from([*edges, *NUMBERS]))
        case "boolean":
            return draw(st.booleans())
        case "array":
            return draw(_lists(schema, depth))
        case "object" if "properties" in schema:
            return draw(_objects(schema, depth))
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return draw(_mappings(schema["additionalProperties"], depth))
        case _:  # x-kubernetes-preserve-unknown-fields
            return draw(st.sampled_from(DEEP))


@st.composite
def _objects(draw: st.DrawFn, schema: Schema, depth: int) -> Raw:
    fields, wanted = schema["properties"], set(schema.get("required") or ())
    if depth > 0 and fields:
        wanted |= draw(st.sets(st.sampled_from(sorted(fields)), max_size=3))
    return {field: draw(values(fields[field], depth - 1)) for field in sorted(wanted) if field in fields}


@st.composite
def _lists(draw: st.DrawFn, schema: Schema, depth: int) -> list[Any]:
    count = draw(st.sampled_from(COUNTS))
    one = draw(values(schema.get("items") or {}, depth - 1)) if count else None
    return repeated(one, count, schema.get("x-kubernetes-list-map-keys") or ())


@st.composite
def _mappings(draw: st.DrawFn, schema: Schema, depth: int) -> Raw:
    count, key = draw(st.sampled_from(COUNTS)), draw(st.sampled_from(KEYS))
    one = draw(values(schema, depth - 1)) if count else None
    most = MOST_BYTES // (len(json.dumps(one)) + len(key) + 8)
    return {f"{key}{number or ''}": one for number in range(min(count, most))}


@st.composite
def put(draw: st.DrawFn, schema: Schema, found: Any) -> Any:
    """`found` with another value in one place: mostly below an existing field, else in a new one."""
    fields = schema.get("properties")
    if fields and isinstance(found, dict) and draw(st.integers(0, 9)) < 9:
        there = [field for field in sorted(fields) if field in found]
        among = there if there and draw(st.integers(0, 3)) > 0 else sorted(fields)
        field = draw(st.sampled_from(among))
        if field in found and not draw(st.integers(0, 9)):
            return {key: value for key, value in found.items() if key != field}
        return {**found, field: draw(put(fields[field], found.get(field)))}
    if schema.get("items") and isinstance(found, list) and found and draw(st.booleans()):
        return [draw(put(schema["items"], found[0])), *found[1:]]
    return draw(values(schema))


# --- what no schema knows of -----------------------------------------------------------------------------------------

_GROUP: Path = ("workerGroupSpecs", 0)
_TEMPLATE: Path = (*_GROUP, "template")
_POD: Path = (*_TEMPLATE, "spec")
_RAY: Path = (*_POD, "containers", 0)
_NODES = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_texts, _numbers, _counts = st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.sampled_from(COUNTS)
_keys, _quantities = st.sampled_from(KEYS), st.sampled_from(QUANTITIES)


def _many(one: Any, *keys: str) -> st.SearchStrategy[list[Any]]:
    return _counts.map(lambda count: repeated(one, count, keys))


def _terms(count: int) -> Raw:
    return {"nodeSelectorTerms": repeated({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, count)}


def _secrets(name: str, count: int) -> list[Raw]:
    return repeated({"name": "v", "secret": {"secretName": name or "x"}}, count, ("name",))


# Places in a RayCluster's spec, each with the values for it.
PLACES: Final[tuple[tuple[Path, st.SearchStrategy[Any]], ...]] = (
    *(((*_GROUP, field), _numbers) for field in ("replicas", "minReplicas", "maxReplicas", "numOfHosts")),
    ((*_GROUP, "suspend"), st.booleans()),
    ((*_GROUP, "groupName"), st.sampled_from(("submitter", "HEAD", "Workers", *TEXTS))),
    ((*_RAY, "resources"), st.builds(lambda amount: {"requests": {"cpu": amount}}, _quantities)),
    ((*_RAY, "resources"), st.builds(lambda key, amount: {"limits": {"cpu": "1", key: amount}}, _keys, _quantities)),
    ((*_RAY, "resources"), st.builds(lambda amount: {"limits": {"cpu": "1", "nvidia.com/gpu": amount}}, _quantities)),
    ((*_RAY, "env"), st.builds(lambda name, text: [{"name": name or "x", "value": text}],
        st.sampled_from(("RAY_NODE_ZONE", "RAY_OVERRIDE_LABELS", "x")), _texts)),
    ((*_RAY, "env"), _many({"name": "x", "value": "y"}, "name")),
    ((*_RAY, "args"), _many("x")),
    ((*_POD, "nodeName"), _texts),
    ((*_POD, "serviceAccountName"), _texts),
    ((*_POD, "hostNetwork"), st.booleans()),
    ((*_POD, "nodeSelector"), st.dictionaries(_keys, _texts, max_size=2)),
    ((*_POD, "tolerations"), _many({"key": "x", "operator": "Exists"}, "key")),
    ((*_POD, *_NODES), _counts.map(_terms)),
    ((*_POD, *_NODES), st.builds(lambda text: {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [text]}]}]}, _texts)),
    ((*_POD, "volumes"), st.builds(_secrets, _texts, st.sampled_from((1, 40)))),
    ((*_POD, "volumes"), st.builds(lambda text: [{"name": text or "v", "hostPath": {"path": text}}], _texts)),
    ((*_POD, "imagePullSecrets"), _many({"name": "x"}, "name")),
    ((*_POD, "overhead"), st.builds(lambda amount: {"cpu": amount}, _quantities)),
    ((*_TEMPLATE, "metadata", "labels"), st.dictionaries(_keys, _texts, max_size=2)),
    ((*_TEMPLATE, "metadata", "annotations"), st.builds(lambda text: {names.ZONE_ANNOTATION: text}, _texts)),
    ((*_TEMPLATE, "metadata", "annotations"), st.dictionaries(_keys, _texts, max_size=2)),
    (("headGroupSpec", "template", "spec", "containers"), _many({"name": "c", "image": "x"}, "name")),
    (("workerGroupSpecs",), st.just([])),
    (("enableInTreeAutoscaling",), st.booleans()),
    (("tlsOptions",), st.sampled_from(({}, {"enabled": False}))),
    (("authOptions",), st.just({"mode": "token", "enableK8sTokenAuth": True})),
    (("unheardOf",), st.sampled_from(DEEP)),
)  # fmt: skip
# Places in its metadata.
MARKS: Final[tuple[tuple[Path, st.SearchStrategy[Any]], ...]] = (
    (("name",), st.sampled_from(("x", "with.dots", "x" * 60, "x" * 240))),
    (("labels", names.PRIORITY_CLASS_LABEL), st.sampled_from(("none-such", "a" * 63))),
    (("annotations", names.ELASTIC_ANNOTATION), st.sampled_from(("true", "", "x" * 100_000))),
    (("annotations", names.RAY_IN_PLACE_RESIZE_ANNOTATION), st.sampled_from(("true", "[]"))),
    (("annotations",), st.builds(lambda text: {"example.com/x": text}, _texts)),
)


def with_value(found: Any, path: Path, value: Any) -> Any:
    """`found` with that value at that place; what does not lead there is put in the way."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        entries = found if isinstance(found, list) else []
        return [with_value(entries[0] if entries else {}, rest, value), *entries[1:]]
    fields = found if isinstance(found, dict) else {}
    return {**fields, step: with_value(fields.get(step), rest, value)}


@st.composite
def _several_groups(draw: st.DrawFn, cluster: Raw) -> list[Raw]:
    """Many worker groups, of names of their own or of the same one."""
    count = draw(st.sampled_from((2, 17, 18, 300)))
    return repeated(cluster["workerGroupSpecs"][0], count, ("groupName",) if draw(st.booleans()) else ())


# --- whole jobs ------------------------------------------------------------------------------------------------------


def base(kind: str) -> Raw:
    """A plain job of two workers, whose pods all go to fake nodes."""
    cluster = ray_cluster("tenant", "tenant", {"workers": 2})
    if kind == "RayCluster":
        return cluster
    submitter = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "submitter", "image": "rayproject/ray:2.60.0"}]}
    }
    own = {"entrypoint": "true", "shutdownAfterJobFinishes": True, "submitterPodTemplate": submitter}
    return {**cluster, "kind": kind, "spec": {**own, "rayClusterSpec": cluster["spec"]}}


def jobs(schemas: Mapping[str, Schema]) -> st.SearchStrategy[Raw]:
    """RayJobs and RayClusters with one to three extremes; `schemas` are the CRDs' openAPIV3Schema by kind."""
    return st.sampled_from(sorted(schemas)).flatmap(lambda kind: _jobs(kind, schemas[kind]))


@st.composite
def _jobs(draw: st.DrawFn, kind: str, schema: Schema) -> Raw:
    job = base(kind)
    for _ in range(draw(st.integers(1, 3))):
        job = draw(_one_more(job, schema))
    return job


@st.composite
def _one_more(draw: st.DrawFn, job: Raw, schema: Schema) -> Raw:
    """A job with one more extreme in it."""
    where: Path = ("spec", "rayClusterSpec") if job["kind"] == "RayJob" else ("spec",)
    match draw(st.sampled_from(("place",) * 6 + ("schema",) * 3 + ("mark", "groups"))):
        case "schema":
            return {**job, "spec": draw(put(schema["properties"]["spec"], job["spec"]))}
        case "mark":
            path, strategy = draw(st.sampled_from(MARKS))
            return dict(with_value(job, ("metadata", *path), draw(strategy)))
        case "groups":
            groups = draw(_several_groups(base("RayCluster")["spec"]))
            return dict(with_value(job, (*where, "workerGroupSpecs"), groups))
        case _:
            path, strategy = draw(st.sampled_from(PLACES))
            return dict(with_value(job, (*where, *path), draw(strategy)))


def drawn(schemas: Mapping[str, Schema], seed: int, count: int) -> list[Raw]:
    """So many jobs of a seed, no two alike: for the same number the same ones each time."""
    found: dict[str, Raw] = {}

    @hypothesis.seed(seed)
    @settings(
        max_examples=2 * count, phases=[Phase.generate], database=None, derandomize=False, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(jobs(schemas))
    def draw(job: Raw) -> None:
        found[json.dumps(job)] = job  # Hypothesis likes to vary little

    draw()
    return list(found.values())[:count]


def submittable(job: Raw, namespace: str, number: int) -> Raw:
    """The job as it is put to a lab, where it must not harm the machine that all clusters share.

    Its pods go to fake nodes, whatever it says: a real node would start Ray. What makes KubeRay itself hold up the
    deletion is left out (finalizers, and a Redis to be cleaned up): the namespace would stay for minutes.
    """
    made = copy.deepcopy(job)
    name = f"t{number}-{made['metadata'].get('name') or 'x'}"
    made["metadata"] |= {"name": name[:253].rstrip(".-"), "namespace": namespace}
    _harmless(made["spec"])
    if made["kind"] == "RayJob" and isinstance(made["spec"], dict):
        made["spec"].setdefault("submitterPodTemplate", base("RayJob")["spec"]["submitterPodTemplate"])
        _on_fake_nodes(made["spec"]["submitterPodTemplate"])
    return made


def _harmless(spec: Any) -> None:
    cluster = spec.get("rayClusterSpec", spec) if isinstance(spec, dict) else {}
    if not isinstance(cluster, dict):
        return
    cluster.pop("gcsFaultToleranceOptions", None)
    groups = cluster.get("workerGroupSpecs")
    for group in (cluster.get("headGroupSpec"), *(groups if isinstance(groups, list) else ())):
        if isinstance(group, dict):
            _on_fake_nodes(group.get("template"))


def _on_fake_nodes(template: Any) -> None:
    if not isinstance(template, dict):
        return
    if isinstance(template.get("metadata"), dict):
        template["metadata"].pop("finalizers", None)
    spec = template.get("spec")
    if isinstance(spec, dict):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **FAKE_NODE}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), TOLERATION]
