"""Conditions on admins' own objects say whether these can be served; an unchanged condition is not written."""

import pytest

from adapter.admission import condition_patches
from adapter.admission.policy import PolicyObjects, policy_of_check
from adapter.objects import specs
from adapter.objects.admissioncheck import read_check
from adapter.objects.unstructured import MAX_TEXT_LENGTH, Raw
from tests.unit.builders import at, make_check, make_condition, make_policy, make_worker_cluster, stamp

POLICIES = PolicyObjects({"default": make_policy()})
NO_GATE = "MutatingAdmissionPolicy rayspan-gate is missing."


def only(patch: Raw | None) -> Raw:
    """The patch's one condition."""
    assert patch
    (found,) = patch["status"]["conditions"]
    return dict(found)


# --- the policy behind a check ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "want"),
    [
        pytest.param(make_check(), "default", id="a check that names a policy of ours"),
        pytest.param(make_check(apiGroup="kueue.x-k8s.io"), "", id="another project's parameters"),
        pytest.param(make_check(kind="MultiKueueConfig"), "", id="another kind"),
        pytest.param(make_check(policy=""), "", id="no name"),
        pytest.param({"spec": {"parameters": None}}, "", id="no parameters"),
        pytest.param({}, "", id="an empty check"),
    ],
)
def test_the_name_of_the_policy(check: Raw, want: str) -> None:
    assert read_check(check).policy == want


def test_the_policy_is_read() -> None:
    assert policy_of_check(read_check(make_check()), POLICIES).clusters == ("east", "west")


@pytest.mark.parametrize(
    ("check", "policies", "sentence"),
    [
        pytest.param(
            make_check(kind="MultiKueueConfig"),
            POLICIES,
            "AdmissionCheck rayspan: spec.parameters must name a DispatchPolicy of rayspan.dev; add apiGroup, kind and "
            "name.",
            id="a check without a policy",
        ),
        pytest.param(
            make_check(policy="gone"),
            POLICIES,
            "AdmissionCheck rayspan: spec.parameters names DispatchPolicy gone, which does not exist; create it.",
            id="a policy that does not exist",
        ),
    ],
)
def test_an_unusable_policy_is_one_sentence(check: Raw, policies: PolicyObjects, sentence: str) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        policy_of_check(read_check(check), policies)
    assert str(error.value) == sentence


def test_a_policy_that_does_not_parse_has_its_readers_message() -> None:
    with pytest.raises(specs.InvalidSpec, match=r"^DispatchPolicy default: spec\.strategy: "):
        policy_of_check(read_check(make_check()), PolicyObjects({"default": make_policy(strategy="Random")}))


def test_a_policy_that_selects_nothing_has_a_message() -> None:
    policy = {"metadata": {"name": "default"}, "spec": {"clusters": {"selector": {"matchLabels": {"tier": "gold"}}}}}
    found = only(
        condition_patches.check_condition(
            make_check(), PolicyObjects({"default": policy}, [make_worker_cluster()]), "", (), at(5)
        )
    )
    assert (found["status"], found["reason"]) == ("True", "NoCluster")
    assert found["message"] == "DispatchPolicy default selects no WorkerCluster; label or name one."


# --- conditions ------------------------------------------------------------------------------------------------------


def test_a_check_that_can_be_served_is_active() -> None:
    assert only(condition_patches.check_condition(make_check(), POLICIES, "", (), at(5))) == {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": "Dispatches Ray workers to east, west.",
        "observedGeneration": 2,
        "lastTransitionTime": stamp(5),
    }


def test_a_message_about_a_hundred_queues_fits() -> None:
    found = only(condition_patches.check_condition(make_check(), POLICIES, "", ["x" * 400] * 100, at(5)))
    assert found["reason"] == "InvalidQueueLayout" and len(str(found["message"])) == MAX_TEXT_LENGTH
    told = make_check()
    told["status"] = {"conditions": [found]}
    assert condition_patches.check_condition(told, POLICIES, "", ["x" * 400] * 100, at(6)) is None, "and is told once"


def test_a_check_with_invalid_parameters_is_inactive() -> None:
    found = only(condition_patches.check_condition(make_check(policy="gone"), POLICIES, "", (), at(5)))
    assert (found["status"], found["reason"]) == ("False", "BadParameters")
    assert found["message"].endswith("which does not exist; create it.")


def test_a_missing_gate_leaves_the_check_active_with_a_message() -> None:
    """An inactive check would stop the whole ClusterQueue, jobs that stay local included."""
    found = only(condition_patches.check_condition(make_check(), POLICIES, NO_GATE, (), at(5)))
    assert (found["status"], found["reason"], found["message"]) == ("True", "GateMissing", NO_GATE)


def test_a_layout_that_cannot_work_has_a_message_and_stops_no_queue() -> None:
    found = only(condition_patches.check_condition(make_check(), POLICIES, "", ("One thing.", "Another."), at(5)))
    assert (found["status"], found["reason"], found["message"]) == ("True", "InvalidQueueLayout", "One thing. Another.")


def test_the_gate_comes_before_the_layout() -> None:
    found = only(condition_patches.check_condition(make_check(), POLICIES, NO_GATE, ("One thing.",), at(5)))
    assert found["reason"] == "GateMissing"


def test_parameters_come_before_the_gate() -> None:
    found = only(condition_patches.check_condition(make_check(policy="gone"), POLICIES, NO_GATE, (), at(5)))
    assert found["reason"] == "BadParameters"


def test_a_worker_cluster_has_a_connected_condition() -> None:
    found = only(condition_patches.cluster_condition(make_worker_cluster(), "", "", True, at(5)))
    assert (found["type"], found["status"], found["reason"]) == ("Connected", "True", "Connected")
    found = only(
        condition_patches.cluster_condition(make_worker_cluster(), "no route to it.", "Unreachable", False, at(5))
    )
    assert (found["status"], found["reason"], found["message"]) == ("Unknown", "Unreachable", "no route to it.")
    found = only(
        condition_patches.cluster_condition(make_worker_cluster(), "no Secret.", "BadConfiguration", False, at(5))
    )
    assert found["status"] == "False", "nobody tried to reach it"


def test_the_first_loss_counts_until_the_cluster_is_reachable_for_a_while() -> None:
    def look(raw: Raw, problem: str, steady: bool, seconds: float) -> Raw:
        patch = condition_patches.cluster_condition(raw, problem, "Unreachable", steady, at(seconds))
        return after(raw, patch) if patch else raw

    lost = look(make_worker_cluster(), "no route to it.", False, 5)
    assert lost["status"]["lostSince"] == stamp(5)
    glimpsed = look(lost, "", False, 20)
    again = look(glimpsed, "no route to it.", False, 25)
    assert again["status"]["lostSince"] == glimpsed["status"]["lostSince"] == stamp(5)
    assert look(look(again, "", False, 30), "", True, 60)["status"]["lostSince"] is None


def test_a_loss_recorded_in_the_future_counts_from_now() -> None:
    """The clock was put back since. Otherwise the workers there would count as lost an hour late."""
    lost = make_worker_cluster()
    lost["status"] = {"lostSince": stamp(3600)}
    patch = condition_patches.cluster_condition(lost, "no route to it.", "Unreachable", False, at(5))
    assert patch and patch["status"]["lostSince"] == stamp(5)


def test_a_loss_that_ended_without_a_leader_does_not_count_for_the_next_loss() -> None:
    """It was connected when the controller went down; the next leader has not observed it for long."""

    def look(raw: Raw, problem: str, seconds: float) -> Raw:
        return after(raw, condition_patches.cluster_condition(raw, problem, "Unreachable", False, at(seconds)))

    glimpsed = look(look(make_worker_cluster(), "no route to it.", 5), "", 10)
    assert glimpsed["status"]["lostSince"] == stamp(5)
    assert look(glimpsed, "no route to it.", 39)["status"]["lostSince"] == stamp(5)
    assert look(glimpsed, "no route to it.", 300)["status"]["lostSince"] == stamp(300)


def test_a_patch_applies_to_this_object_alone() -> None:
    """A later version is excluded too: the list of conditions is written whole, and others may have added one."""
    raw = make_worker_cluster()
    patch = condition_patches.cluster_condition(
        raw | {"metadata": raw["metadata"] | {"resourceVersion": "17"}}, "", "", True, at(5)
    )
    assert patch
    assert patch["metadata"] == {"uid": "uid-of-east", "resourceVersion": "17"}
    assert patch.keys() == {"metadata", "status"}


def connected(raw: Raw, seconds: float, problem: str = "") -> Raw | None:
    return condition_patches.cluster_condition(raw, problem, "Unreachable", not problem, at(seconds))


def after(raw: Raw, patch: Raw | None) -> Raw:
    """The object after the API server applied the merge patch."""
    assert patch
    return {**raw, "status": raw["status"] | patch["status"]}


def test_an_unchanged_condition_is_not_written() -> None:
    raw = make_worker_cluster()
    for problem in ("", "no route to it."):
        told = after(raw, connected(raw, 5, problem))
        assert connected(told, 99, problem) is None
    told = after(make_check(), condition_patches.check_condition(make_check(), POLICIES, "", (), at(5)))
    assert condition_patches.check_condition(told, POLICIES, "", (), at(99)) is None


def test_a_new_generation_is_written() -> None:
    """Otherwise nobody could see whether the edit was read."""
    raw = after(make_worker_cluster(), connected(make_worker_cluster(), 5))
    edited = {**raw, "metadata": raw["metadata"] | {"generation": 4}}
    found = only(connected(edited, 9))
    assert (found["observedGeneration"], found["lastTransitionTime"]) == (4, stamp(5))


def test_a_conditions_time_is_that_of_its_change() -> None:
    raw = make_worker_cluster()
    lost = after(raw, connected(raw, 5, "no route to it."))
    reworded = after(lost, connected(lost, 50, "it does not accept the credentials."))
    back = after(reworded, connected(reworded, 70))
    assert [raw["status"]["conditions"][0]["lastTransitionTime"] for raw in (lost, reworded, back)] == [
        stamp(5),
        stamp(5),
        stamp(70),
    ]


def test_conditions_of_others_are_kept() -> None:
    other = make_condition("Audited")
    patch = connected(make_worker_cluster(conditions=[other]), 5)
    assert patch
    assert [c["type"] for c in patch["status"]["conditions"]] == ["Audited", "Connected"]
    assert patch["status"]["conditions"][0] == other


def test_the_identity_overwrites_no_unread_value() -> None:
    raw = make_worker_cluster()
    raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": "17"}}
    patch = condition_patches.cluster_status(raw, "", "", True, 0, at(5), uid="u1")
    assert patch and patch["status"]["clusterUID"] == "u1"
    told = after(raw, patch)
    assert condition_patches.cluster_status(told, "", "", True, 0, at(9), uid="u1") is None, "once"
    assert condition_patches.cluster_status(told, "", "", True, 0, at(9)) is None, "it is kept while nothing is known"
    assert condition_patches.cluster_status(told, "", "", True, 0, at(9), uid="u2") == {
        "metadata": {"uid": "uid-of-east", "resourceVersion": "17"},
        "status": {"clusterUID": "u2"},
    }


def test_a_cluster_without_a_claim_is_connected_with_a_message() -> None:
    found = only(
        condition_patches.cluster_condition(
            make_worker_cluster(), "", "", True, at(5), unclaimed="no claim can be held"
        )
    )
    assert (found["status"], found["reason"]) == ("True", "NotClaimed")
    assert found["message"] == "Its API server answers and its queues are read. But no claim can be held."


_ENDS = "Its token expires on 2027-02-25: renew it with `kubectl rayspan rotate east --worker-context CONTEXT`."
_WELL = "Its API server answers and its queues are read."


@pytest.mark.parametrize(
    ("problem", "lack", "unclaimed", "connected", "ready"),
    [
        pytest.param(
            "", "", "", f"{_WELL} {_ENDS}", f"New workers may go there. {_ENDS}", id="connected, with nothing wrong",
        ),
        pytest.param(
            "", "No new workers.", "", f"No new workers. {_ENDS}", f"No new workers. {_ENDS}", id="no new workers",
        ),
        pytest.param("", "", "no claim", *[f"{_WELL} But no claim. {_ENDS}"] * 2, id="claim not held"),
        pytest.param("no route.", "", "", "no route.", "no route.", id="unreachable, which comes first"),
    ],
)  # fmt: skip
def test_an_expiring_token_is_added_to_the_message_once(
    problem: str, lack: str, unclaimed: str, connected: str, ready: str
) -> None:
    def look(raw: Raw, seconds: float) -> Raw | None:
        return condition_patches.cluster_status(
            raw, problem, "Unreachable", True, 0, at(seconds), lack=lack, unclaimed=unclaimed, expiring=_ENDS
        )

    told = after(make_worker_cluster(), look(make_worker_cluster(), 5))
    assert [one["message"] for one in told["status"]["conditions"]] == [connected, ready]
    assert look(told, 3600) is None


def test_an_older_crd_of_placement_is_told_and_the_queue_stays_active() -> None:
    patch = condition_patches.check_condition(
        make_check(), POLICIES, "", (), at(5), record_problem="Placement lacks a."
    )
    found = only(patch)
    assert (found["status"], found["reason"], found["message"]) == ("True", "CRDOutdated", "Placement lacks a.")


def test_what_other_crds_lack_is_told_beside_the_clusters() -> None:
    found = only(condition_patches.check_condition(make_check(), POLICIES, "", (), at(5), outdated="A lacks b."))
    assert (found["status"], found["reason"]) == ("True", "Ready") and found["message"].endswith(". A lacks b.")
