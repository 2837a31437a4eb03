"""The Ready condition of a WorkerCluster and of a DispatchPolicy: one fault, for every generation, written once."""

from typing import Any

import pytest

from adapter.admission import condition_patches, readiness
from adapter.admission.policy import PolicyObjects
from adapter.admission.readiness import Readiness
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import at, make_condition, make_policy, make_worker_cluster, stamp

WELL = make_condition("Connected", reason="Connected", message="Its API server answers.")
CUT_OFF = make_condition("Reachable", False, reason="NoRoute", message="No way.")
EAST, WEST = make_worker_cluster("east"), make_worker_cluster("west")
BOTH = PolicyObjects(clusters=[EAST, WEST])


def connected(status: bool | str, reason: str, message: str = "A sentence.") -> Raw:
    return {**make_condition("Connected", reason=reason, message=message), "status": str(status)}


# --- a WorkerCluster -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "spec", "cut_off", "want"),
    [
        pytest.param([], {}, "", None, id="no conditions"),
        pytest.param([CUT_OFF], {}, "No way.", None, id="only a preflight's condition"),
        pytest.param([WELL], {}, "", Readiness("True", "Ready", "New workers may go there."), id="all is well"),
        pytest.param(
            [connected("Unknown", "Unreachable")],
            {},
            "No way.",
            Readiness("Unknown", "Unreachable", "A sentence."),
            id="unreachable",
        ),
        pytest.param(
            [connected(False, "BadConfiguration")],
            {"cordoned": True},
            "",
            Readiness("False", "BadConfiguration", "A sentence."),
            id="a wrong kubeconfig comes before a cordon",
        ),
        pytest.param(
            [connected(True, "NotClaimed"), CUT_OFF],
            {},
            "No way.",
            Readiness("False", "NotClaimed", "A sentence."),
            id="connected, and the claim is not held",
        ),
        pytest.param(
            [connected(True, "HeadsNotMirrored")],
            {},
            "",
            Readiness("False", "HeadsNotMirrored", "A sentence."),
            id="heads are not mirrored",
        ),
        pytest.param(
            [WELL, CUT_OFF],
            {"cordoned": True},
            "No way.",
            Readiness("False", "NoRoute", "No way."),
            id="pods are cut off",
        ),
        pytest.param(
            [WELL, CUT_OFF],
            {},
            "",
            Readiness("True", "Ready", "New workers may go there."),
            id="a preflight of another cluster",
        ),
        pytest.param(
            [WELL],
            {"cordoned": True},
            "",
            Readiness("True", "Cordoned", "It is cordoned: no new workers go there."),
            id="cordoned, which is no fault",
        ),
        pytest.param(
            [WELL],
            {"cordoned": True, "draining": True},
            "",
            Readiness("True", "Draining", "It is drained: its workers are moved away, and no new ones go there."),
            id="drained",
        ),
    ],
)
def test_the_readiness_of_a_cluster(found: list[Raw], spec: Raw, cut_off: str, want: Readiness | None) -> None:
    assert readiness.cluster_readiness(make_worker_cluster(conditions=found, **spec), cut_off) == want


@pytest.mark.parametrize(
    ("found", "spec", "cut_off", "want"),
    [
        pytest.param([], {}, "", Readiness("True", "NotClaimed", "A sentence."), id="no claim can be held"),
        pytest.param([CUT_OFF], {}, "No way.", Readiness("False", "NoRoute", "No way."), id="pods are cut off"),
        pytest.param(
            [],
            {"cordoned": True},
            "",
            Readiness("True", "Cordoned", "It is cordoned: no new workers go there."),
            id="cordoned",
        ),
    ],
)
def test_a_cluster_where_no_claim_can_be_held_stays_in_use(
    found: list[Raw], spec: Raw, cut_off: str, want: Readiness
) -> None:
    """The account is older than the controller: the manager is upgraded before the worker clusters."""
    raw = make_worker_cluster(conditions=[connected(True, "NotClaimed"), *found], **spec)
    assert readiness.cluster_readiness(raw, cut_off, unguarded=True) == want


def told(raw: Raw, problem: str = "", *, seconds: float = 5, workers: int = 0, cut_off: str = "") -> Raw | None:
    reason = "Unreachable" if problem else ""
    return condition_patches.cluster_status(raw, problem, reason, not problem, workers, at(seconds), cut_off=cut_off)


def after(raw: Raw, patch: Raw | None, *, drops: tuple[str, ...] = ()) -> Raw:
    """The object after the API server applied the merge patch; one with an older CRD drops fields."""
    assert patch
    return {**raw, "status": {k: v for k, v in {**raw["status"], **patch["status"]}.items() if k not in drops}}


def test_one_patch_writes_both_conditions() -> None:
    raw = make_worker_cluster(conditions=[make_condition("Audited")])
    raw["metadata"]["resourceVersion"] = "17"
    patch = told(raw, "no route to it.", workers=2)
    assert patch and patch["metadata"] == {"uid": "uid-of-east", "resourceVersion": "17"}
    assert [(c["type"], c["status"]) for c in patch["status"]["conditions"]] == [
        ("Audited", "True"),
        ("Connected", "Unknown"),
        ("Ready", "Unknown"),
    ]
    assert {c["observedGeneration"] for c in patch["status"]["conditions"][1:]} == {3}
    assert (patch["status"]["observedGeneration"], patch["status"]["lostSince"]) == (3, stamp(5))
    assert patch["status"]["workers"] == 2


@pytest.mark.parametrize("drops", [(), ("observedGeneration",)], ids=["this CRD", "an older CRD"])
@pytest.mark.parametrize("problem", ["", "no route to it."])
def test_an_unchanged_condition_is_not_written(problem: str, drops: tuple[str, ...]) -> None:
    first = after(make_worker_cluster(), told(make_worker_cluster(), problem), drops=drops)
    assert told(first, problem, seconds=99) is None


def test_a_new_generation_is_written_in_all_conditions() -> None:
    raw = after(make_worker_cluster(), told(make_worker_cluster()))
    edited = after(
        {**raw, "metadata": raw["metadata"] | {"generation": 4}},
        told({**raw, "metadata": raw["metadata"] | {"generation": 4}}, seconds=9),
    )
    assert edited["status"]["observedGeneration"] == 4
    assert {(c["observedGeneration"], c["lastTransitionTime"]) for c in edited["status"]["conditions"]} == {
        (4, stamp(5))
    }


def test_the_result_of_a_later_preflight_is_written() -> None:
    raw = after(make_worker_cluster(), told(make_worker_cluster()))
    raw["status"]["conditions"] = [*raw["status"]["conditions"], CUT_OFF]
    patch = told(raw, seconds=9, cut_off="No way.")
    assert patch
    ready = next(c for c in patch["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "NoRoute", "No way.")
    assert told(after(raw, patch), seconds=20, cut_off="No way.") is None


# --- a DispatchPolicy -------------------------------------------------------------------------------------------------


def by_config(*listed: str) -> PolicyObjects:
    return PolicyObjects(clusters=[EAST, WEST], configs={"all": {"spec": {"clusters": list(listed)}}})


def choosing(**clusters: Any) -> Raw:
    return {"metadata": {"name": "default"}, "spec": {"clusters": clusters}}


CONFIG = choosing(multiKueueConfigRef={"name": "all"})


@pytest.mark.parametrize(
    ("policy", "written", "reason", "sentence"),
    [
        pytest.param(make_policy(), BOTH, "Ready", "Considers east, west.", id="all named clusters exist"),
        pytest.param(make_policy(workerStartTimeout="28m"), BOTH, "Ready", "Considers east, west.",
            id="workers have as long as Kueue lets them"),
        pytest.param(
            make_policy(workerStartTimeout="28m1s"),
            PolicyObjects(clusters=[EAST, {**WEST, "spec": {**WEST["spec"], "podsReadyTimeout": "1h"}}]),
            "Ready",
            "Considers east, west. DispatchPolicy default: spec.workerStartTimeout is 28.0167 min, and Kueue in east "
            "stops the workers of a share of which none is ready before that; set it to at most 28 min, or raise "
            "waitForPodsReady.timeout of Kueue there and spec.podsReadyTimeout of the WorkerCluster.",
            id="a cluster's Kueue stops late workers first",
        ),
        pytest.param(
            make_policy(clusters=["west", "north"]),
            BOTH,
            "UnknownCluster",
            "DispatchPolicy default: spec.clusters.names has WorkerCluster north, which does not exist; join it "
            "(`kubectl rayspan join`), or remove it.",
            id="one named cluster does not exist",
        ),
        pytest.param(
            make_policy(),
            PolicyObjects(),
            "UnknownCluster",
            "DispatchPolicy default: spec.clusters.names has WorkerClusters east, west, which do not exist; join them "
            "(`kubectl rayspan join`), or remove them.",
            id="no named cluster exists",
        ),
        pytest.param(
            choosing(selector={"matchLabels": {"tier": "gold"}}),
            BOTH,
            "NoCluster",
            "DispatchPolicy default selects no WorkerCluster; label or name one.",
            id="a selector that matches none",
        ),
        pytest.param(
            choosing(selector={"matchLabels": {"rayspan.dev/cluster": "west"}}), BOTH, "Ready", "Considers west.",
            id="a selector",
        ),
        pytest.param(CONFIG, by_config("west", "east"), "Ready", "Considers west, east.", id="a MultiKueueConfig"),
        pytest.param(
            CONFIG,
            by_config("east", "north"),
            "Ready",
            "Considers east. Its MultiKueueConfig also lists north, for which there is no WorkerCluster.",
            id="a MultiKueueConfig that lists other clusters too",
        ),
        pytest.param(
            CONFIG,
            by_config("north"),
            "UnknownCluster",
            "DispatchPolicy default: MultiKueueConfig all of spec.clusters.multiKueueConfigRef lists no cluster that "
            "is a WorkerCluster; create WorkerCluster north, with the MultiKueueCluster in "
            "spec.source.multiKueueClusterRef.",
            id="a MultiKueueConfig of other clusters only",
        ),
        pytest.param(
            CONFIG,
            PolicyObjects(clusters=[EAST], configs={}),
            "BadConfiguration",
            "DispatchPolicy default: spec.clusters.multiKueueConfigRef names MultiKueueConfig all, which does not "
            "exist; create it.",
            id="a MultiKueueConfig that does not exist",
        ),
        pytest.param(
            make_policy(strategy="Random"),
            BOTH,
            "BadConfiguration",
            "DispatchPolicy default: spec.strategy: Input should be 'FillInOrder', 'AvailableCapacity', 'Spread' or "
            "'Cheapest', found 'Random'.",
            id="a spec that cannot be read",
        ),
    ],
)  # fmt: skip
def test_the_readiness_of_a_policy(policy: Raw, written: PolicyObjects, reason: str, sentence: str) -> None:
    want = "True" if reason == "Ready" else "False"
    assert readiness.policy_readiness(policy, written) == Readiness(want, reason, sentence)


def test_a_policys_condition_is_written_once_for_each_generation() -> None:
    raw = make_policy()
    raw = {**raw, "metadata": {**raw["metadata"], "uid": "u", "generation": 7, "resourceVersion": "17"}, "status": {}}
    patch = condition_patches.policy_status(raw, BOTH, at(5))
    entry = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "Considers east, west.",
        "observedGeneration": 7,
    }
    assert patch == {
        "metadata": {"uid": "u", "resourceVersion": "17"},
        "status": {"observedGeneration": 7, "conditions": [{**entry, "lastTransitionTime": stamp(5)}]},
    }
    first = after(raw, patch)
    assert condition_patches.policy_status(first, BOTH, at(99)) is None
    patch = condition_patches.policy_status({**first, "metadata": raw["metadata"] | {"generation": 8}}, BOTH, at(99))
    assert patch and patch["status"]["observedGeneration"] == 8
    patch = condition_patches.policy_status(first, PolicyObjects(), at(99))
    assert patch and patch["status"]["conditions"][0]["lastTransitionTime"] == stamp(99)
