"""A copied object has a unique name, the share's labels and owner, and only the data that pods read."""

import pytest

from adapter import names
from adapter.objects.references import Reference
from adapter.objects.workload import PodSet
from adapter.rewrite import copied_objects
from adapter.rewrite.copied_objects import (
    FORBIDDEN,
    MAX_BYTES,
    MAX_OBJECTS,
    MISSING,
    SourceObject,
    missing_for_podsets,
    missing_reason,
    over_limit_reason,
    rejection_of_podsets,
    rejection_reason,
)

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "p-2", "uid": "anchor"}
TOKEN, CODE = Reference("Secret", "token"), Reference("ConfigMap", "code")
POD = {
    "metadata": {
        "name": "worker",
        "namespace": "demo",
        "labels": {
            names.MANAGER_LABEL: "mgr",
            names.WORKLOAD_UID_LABEL: "w",
            names.PLACEMENT_LABEL: "p",
            names.CLUSTER_LABEL: "east",
            names.POD_UID_LABEL: "u",
            names.QUEUE_LABEL: "ray",
        },
        "annotations": {names.WORKLOAD_ANNOTATION: "train", names.ROUND_ANNOTATION: "2", names.SLOT_ANNOTATION: "s"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "p-2", "uid": "anchor"}],
    }
}


def test_the_copy_of_a_secret() -> None:
    source = {
        "metadata": {
            "name": "token",
            "uid": "x",
            "labels": {"team": "a"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "dmFsdWU="},
        },
        "type": "kubernetes.io/dockerconfigjson",
        "data": {"k": "dmFsdWU="},
        "immutable": True,
    }
    assert copied_objects.build_copy(TOKEN, source, POD, [OWNER]) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": copied_objects.copy_name(TOKEN, "east", "w"),
            "namespace": "demo",
            "labels": {
                "rayspan.dev/manager": "mgr",
                "rayspan.dev/workload-uid": "w",
                "rayspan.dev/placement": "p",
                "rayspan.dev/cluster": "east",
                "rayspan.dev/copy": "true",
            },
            "annotations": {
                "rayspan.dev/workload": "train",
                "rayspan.dev/copy-of": "Secret token",
            },
            "ownerReferences": [OWNER],
        },
        "type": "kubernetes.io/dockerconfigjson",
        "data": {"k": "dmFsdWU="},
    }


def test_the_copy_of_a_config_map_has_all_its_data() -> None:
    made = copied_objects.build_copy(CODE, {"data": {"a": "1"}, "binaryData": {"b": "AA=="}}, POD, [])
    assert (made["data"], made["binaryData"], made["kind"]) == ({"a": "1"}, {"b": "AA=="}, "ConfigMap")


def test_each_job_cluster_and_source_has_its_own_copy() -> None:
    every = [
        copied_objects.copy_name(one, cluster, uid)
        for one in (TOKEN, CODE, Reference("ConfigMap", "token"))
        for cluster in ("east", "west")
        for uid in ("a", "b")
    ]
    assert len(set(every)) == 12
    assert all(len(one) <= 63 and one.startswith("rayspan-") for one in every)
    assert copied_objects.copy_name(TOKEN, "east", "a") == every[0], (
        "the same again: what stands there is an earlier try"
    )


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        ({"kind": "Secret", "data": {"k": "dmFsdWVz", "l": "dg=="}, "type": "Opaque"}, 7),
        ({"kind": "ConfigMap", "data": {"k": "añb"}}, 4),
        ({"kind": "ConfigMap", "binaryData": {"k": "dmFsdWVz"}}, 6),
        ({"kind": "Secret"}, 0),
    ],
)
def test_the_size_of_a_source(raw: dict[str, object], size: int) -> None:
    assert copied_objects.describe_source(raw) == SourceObject("Found", str(raw.get("type") or ""), size)


NEEDED, SPARED = {TOKEN: "spec.volumes[v].secret"}, {TOKEN: ""}
ACCOUNT = SourceObject("Found", "kubernetes.io/service-account-token")


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        (NEEDED, SourceObject("Found", "Opaque", 5), ""),
        (NEEDED, MISSING, ""),
        (NEEDED, None, ""),
        (NEEDED, FORBIDDEN, ""),
        (
            NEEDED,
            ACCOUNT,
            "spec.volumes[v].secret is Secret token of type kubernetes.io/service-account-token: the token's "
            "issuer is the "
            "manager, which the other cluster does not trust; use a credential of another kind",
        ),
        (
            SPARED,
            ACCOUNT,
            "Secret token of type kubernetes.io/service-account-token: the token's issuer is the "
            "manager, which the other cluster does not trust; use a credential of another kind",
        ),
    ],
)
def test_types_of_secrets_that_are_never_copied(
    wanted: dict[Reference, str], found: SourceObject | None, said: str
) -> None:
    assert rejection_reason(wanted, {TOKEN: found} if found else {}) == said


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        (NEEDED, MISSING,
         ("spec.volumes[v].secret is Secret token, which does not exist in namespace demo; create it, and the job "
          "continues")),
        (SPARED, MISSING, ""),
        (NEEDED, FORBIDDEN,
         "spec.volumes[v].secret is Secret token, which the controller may not read in namespace demo; bind "
         "ClusterRole rayspan-copies to ServiceAccount rayspan-controller of namespace rayspan-system there, and the "
         "job continues"),
        (SPARED, FORBIDDEN, ""),
        (NEEDED, SourceObject("Found"), ""),
        (NEEDED, None, ""),
    ],
)  # fmt: skip
def test_a_missing_or_forbidden_source_may_still_come(
    wanted: dict[Reference, str], found: SourceObject | None, said: str
) -> None:
    assert missing_reason("demo", wanted, {TOKEN: found} if found else {}) == said


@pytest.mark.parametrize("field", ["", "spec.volumes[v].secret"])
def test_an_invalid_name_is_rejected_by_the_check(field: str) -> None:
    said = rejection_reason({Reference("Secret", "../../other/secrets/x"): field}, {})
    told = "Secret '../../other/secrets/x', which is not a valid object name; use the name of an object"
    assert said == (f"{field} is {told}" if field else told)
    assert rejection_reason({Reference("ConfigMap", "kube-root-ca.crt"): field}, {}) == ""
    assert rejection_reason({Reference("ConfigMap", "a" * 254): field}, {})


def test_the_number_of_copied_objects_of_a_job_is_bounded() -> None:
    many = {Reference("Secret", f"s{number}"): SourceObject("Found") for number in range(MAX_OBJECTS + 1)}
    assert over_limit_reason(list(many)[1:], many) == ""
    assert over_limit_reason(many, many) == (
        "its worker groups refer to 33 Secrets and ConfigMaps, and at most 32 are copied to worker clusters; put "
        "several "
        "values into one"
    )


def test_the_size_of_copied_objects_of_a_job_is_bounded() -> None:
    assert (
        over_limit_reason(
            [TOKEN, CODE], {TOKEN: SourceObject("Found", size=1), CODE: SourceObject("Found", size=MAX_BYTES - 1)}
        )
        == ""
    )
    assert over_limit_reason(
        [TOKEN, CODE], {TOKEN: SourceObject("Found", size=1), CODE: SourceObject("Found", size=MAX_BYTES)}
    ) == (
        "the Secrets and ConfigMaps of its worker groups hold 4.0 MiB, and at most 4.0 MiB are copied to worker "
        "clusters; put "
        "large files, such as ConfigMap code with 4.0 MiB, into the image or object storage"
    )


# --- worker groups together ------------------------------------------------------------------------------------------

CONFIG, OTHER = Reference("ConfigMap", "settings"), Reference("ConfigMap", "other")
BAD_TYPE = "kubernetes.io/service-account-token"


def group(name: str, *references: Reference) -> PodSet:
    sources = [{"secretRef" if one.kind == "Secret" else "configMapRef": {"name": one.name}} for one in references]
    return PodSet(name, 1, {"spec": {"containers": [{"name": "ray", "envFrom": sources}]}}, frozenset())


@pytest.mark.parametrize(
    ("groups", "known", "refused", "missing"),
    [
        pytest.param([], {}, "", "", id="no worker group"),
        pytest.param([group("a", CONFIG)], {CONFIG: SourceObject("Found")}, "", "", id="all sources exist"),
        pytest.param([group("a", CONFIG), group("b", OTHER)], {CONFIG: SourceObject("Found"), OTHER: MISSING}, "",
            "worker group b: ",
                     id="a source of another group is missing"),
        pytest.param([group("a", CONFIG), group("b", TOKEN)],
            {CONFIG: SourceObject("Found"), TOKEN: SourceObject("Found", type=BAD_TYPE)}, "worker group b: ", "",
                     id="one source can never be copied"),
        pytest.param([group("a", CONFIG), group("b", OTHER)],
                     {CONFIG: SourceObject("Found", size=MAX_BYTES), OTHER: SourceObject("Found", size=1)}, "the ", "",
                     id="all sources together are too large"),
    ],
)  # fmt: skip
def test_copy_problems_of_several_worker_groups(
    groups: list[PodSet], known: dict[Reference, SourceObject], refused: str, missing: str
) -> None:
    told = rejection_of_podsets(groups, known)
    assert told.startswith(refused) and bool(told) is bool(refused)
    lacking = missing_for_podsets("demo", groups, known)
    assert lacking.startswith(missing) and bool(lacking) is bool(missing)
