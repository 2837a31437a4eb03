"""What a preflight looks for of the names in spec.pods, and what it says of each answer."""

import pytest

from adapter.objects.named_objects import NamedClaimTemplate, NamedObject
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import RawDict as Raw
from adapter.preflight import named_there, probe
from adapter.preflight.preflight_facts import NamedAnswer, NamedThere
from tests.unit.builders import at, make_condition, make_worker_cluster, stamp
from tests.unit.preflight.test_evaluation import fleet, shown

FSX = NamedThere("claim", "persistentVolumeClaims", "fsx")
H200 = NamedThere("ResourceClaimTemplate", "resourceClaimTemplates", "h200")
KSA = NamedThere("service account", "serviceAccounts", "ray-ksa")
OF_ALL = NamedThere("RuntimeClass", "runtimeClassName", "gvisor", of_all_pods=True)
VOLCANO = NamedThere("scheduler", "schedulers", "volcano")

MAPPING = PodMapping(
    service_account="ray-worker",
    service_accounts=(
        NamedObject(name="raydata", renamed="ray-ksa", namespaces=("demo",)),
        NamedObject(name="other", namespaces=("elsewhere",)),
        NamedObject(name="again", renamed="ray-worker"),
    ),
    claims=(NamedObject(name="*"), NamedObject(name="models", renamed="fsx")),
    claim_templates=(
        NamedClaimTemplate(name="one-gpu", renamed="h200", resources={"example.com/gpu": 1}),
        NamedClaimTemplate(name="two", namespaces=("elsewhere",), resources={"example.com/gpu": 2}),
    ),
    runtime_classes=(NamedObject(name="*", renamed="kata"),),
    priority_classes=(NamedObject(name="gold", renamed="high"),),
    schedulers=(NamedObject(name="volcano"),),
)


def test_the_names_there_that_count_for_the_namespace_are_looked_for_once() -> None:
    assert named_there.named_in_cluster(MAPPING, "demo") == (
        NamedThere("service account", "serviceAccountName", "ray-worker", of_all_pods=True),
        KSA,
        FSX,
        H200,
        NamedThere("RuntimeClass", "runtimeClasses", "kata"),
        NamedThere("priority class", "priorityClasses", "high"),
        VOLCANO,
    )
    assert KSA not in named_there.named_in_cluster(MAPPING, "elsewhere")
    assert named_there.named_in_cluster(PodMapping(), "demo") == ()


def test_a_trial_pod_is_a_plain_one_that_names_the_object() -> None:
    plain: Raw = {"metadata": {"name": "a"}, "spec": {"containers": []}}
    want = {"metadata": {"name": "a"}, "spec": {"containers": [], "serviceAccountName": "ray-ksa"}}
    assert named_there.trial_pod(plain, KSA) == want
    assert plain["spec"] == {"containers": []}


@pytest.mark.parametrize(
    ("answers", "outcome", "text"),
    [
        pytest.param(
            [NamedAnswer(KSA, "missing", 'error looking up service account demo/ray-ksa: "ray-ksa" not found')],
            "warning",
            "WorkerCluster east names ray-ksa in spec.pods.serviceAccounts, and namespace demo there has no such "
            'service account: error looking up service account demo/ray-ksa: "ray-ksa" not found; create it there, or '
            "leave namespace demo out of the entry's namespaces.",
            id="a listed account",
        ),
        pytest.param(
            [NamedAnswer(FSX, "missing")],
            "warning",
            "WorkerCluster east names fsx in spec.pods.persistentVolumeClaims, and namespace demo there has no such "
            "claim; create it there, or leave namespace demo out of the entry's namespaces.",
            id="a claim",
        ),
        pytest.param(
            [NamedAnswer(H200, "missing")],
            "warning",
            "WorkerCluster east names h200 in spec.pods.resourceClaimTemplates, and namespace demo there has no such "
            "ResourceClaimTemplate; create it there, or leave namespace demo out of the entry's namespaces.",
            id="a ResourceClaimTemplate",
        ),
        pytest.param(
            [NamedAnswer(OF_ALL, "missing", 'RuntimeClass "gvisor" not found.')],
            "failure",
            "WorkerCluster east names gvisor in spec.pods.runtimeClassName, and that cluster has no such RuntimeClass: "
            'RuntimeClass "gvisor" not found; create it there, or change the field.',
            id="what every pod gets",
        ),
        pytest.param(
            [NamedAnswer(FSX, "unknown", "may not get claims"), NamedAnswer(VOLCANO, "unknown", "no pod runs by it")],
            "warning",
            "Whether claim fsx (may not get claims) and scheduler volcano (no pod runs by it) exist in east for "
            "namespace demo could not be seen; a worker waits there without a node if its claim, its "
            "ResourceClaimTemplate or its scheduler is missing.",
            id="what could not be looked for is one note",
        ),
        pytest.param(
            [NamedAnswer(KSA, "exists")], "ok", "What its WorkerCluster names for namespace demo exists.", id="exists"
        ),
    ],
)
def test_findings(answers: list[NamedAnswer], outcome: str, text: str) -> None:
    (finding,) = named_there.named_findings("east", "demo", answers)
    assert (finding.outcome, finding.message) == (outcome, text)


def test_what_could_not_be_seen_does_not_fail_a_preflight() -> None:
    sides = fleet(east={"named": (NamedAnswer(FSX, "unknown", "may not get claims"),)})
    assert shown(sides).endswith("\n\nReady with 1 warning: nothing was found that would keep workers from joining.\n")


@pytest.mark.parametrize(
    ("answers", "status", "reason"),
    [
        ([NamedAnswer(KSA, "missing"), NamedAnswer(FSX, "unknown")], "False", "NamesMissing"),
        ([NamedAnswer(KSA, "exists"), NamedAnswer(FSX, "unknown")], "Unknown", "NamesNotSeen"),
        ([NamedAnswer(KSA, "exists")], "True", "NamesExist"),
    ],
)
def test_the_condition(answers: list[NamedAnswer], status: str, reason: str) -> None:
    findings = list(named_there.named_findings("east", "demo", answers))
    patch = named_there.status_patch(make_worker_cluster(), answers, findings, at(5))
    assert patch is not None
    (entry,) = patch["status"]["conditions"]
    assert (entry["type"], entry["status"], entry["reason"]) == ("NamesExist", status, reason)
    assert entry["message"] == " ".join(finding.message for finding in findings)
    assert entry["lastTransitionTime"] == stamp(5)


def test_the_condition_goes_with_the_last_name() -> None:
    assert named_there.status_patch(make_worker_cluster(), [], [], at(5)) is None
    before = make_worker_cluster(conditions=[make_condition("NamesExist", status=False)])
    patch = named_there.status_patch(before, [], [], at(5))
    assert patch is not None and patch["status"] == {"conditions": []}
    before["spec"]["pods"] = {"serviceAccounts": [{"name": "raydata", "namespaces": ["elsewhere"]}]}
    assert named_there.status_patch(before, [], [], at(5)) is None, "it is about another namespace"


def test_the_pod_of_a_dry_run_is_restricted_as_a_probe_is() -> None:
    run = probe.ProbeRun("x", "demo", "image", at(60) - at(0))
    assert probe.trial_pod(run)["spec"]["securityContext"] == probe.server_pod(run, "t")["spec"]["securityContext"]
