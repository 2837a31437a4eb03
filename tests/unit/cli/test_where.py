"""`rayspan where`, `rayspan why` and `rayspan top` from their user's view: rights, output and exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import names
from adapter.cli import job_reader, where_table, why
from adapter.diagnosis.job_document import describe_job
from adapter.diagnosis.job_facts import JobFacts
from adapter.objects.move_from import MoveFrom, ignored_part
from adapter.objects.unstructured import Raw
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, lists, refuses, says
from tests.unit.builders import (
    NAMESPACE,
    START,
    make_check,
    make_condition,
    make_placement,
    make_pod,
    make_policy,
    make_worker_cluster,
    make_workload,
)
from tests.unit.diagnosis.jobs import make_facts, make_head, make_job, make_worker
from tests.unit.stores import Sight, make_group, make_ray_job
from tests.unit.verbs import run

GOLDEN = Path(__file__).parent / "golden"
NOW = START + timedelta(minutes=10)
KUEUE, OURS, RAY = "/apis/kueue.x-k8s.io/v1beta2", "/apis/rayspan.dev/v1alpha1", "/apis/ray.io/v1"
IN = f"/namespaces/{NAMESPACE}"


def page(*objects: Mapping[str, Any]) -> Answer:
    """A list with these objects."""
    return lists(1, [dict(one) for one in objects if one])


def answers(facts: JobFacts, refused: Mapping[str, Answer] | None = None) -> list[Answer]:
    """The API server's answers about a RayJob, in the order in which the kinds are read."""
    checks = [{"metadata": {"name": one}, "spec": {"controllerName": names.CONTROLLER_NAME}} for one in facts.checks]
    started = [("rayclusters", says(facts.ray_cluster)), ("pods", page(*facts.pods))] if facts.ray_cluster else []
    found: list[tuple[str, Answer]] = [
        ("rayjobs", says(facts.job)),
        ("workloads", page(facts.workload)),
        *([("localqueues", says(facts.local_queue))] if facts.queue else []),
        ("placements", page(facts.placement)),
        *started,
        ("workerclusters", page(*facts.worker_clusters.values())),
        ("admissionchecks", page(*checks)),
        ("events", page()),
        *([("events", page())] if facts.ray_cluster and not facts.pods else []),
    ]
    return [(refused or {}).get(kind, answer) for kind, answer in found]


def in_queue() -> JobFacts:
    """A gang that waits for capacity."""
    work = make_workload()
    placement = make_placement(
        work, shares={}, state="Waiting", workers="0 of 99", reason="99 workers needed at once, 9 fit now"
    )
    job = make_ray_job(make_group(99))
    job["metadata"] |= {"uid": "uid-of-job"}
    placement["spec"]["check"] = "rayspan"
    return make_facts(work, job=job, placement=placement, ray_cluster={}, pods=[])


# --- the output -------------------------------------------------------------------------------------------------------


def test_the_tree_of_a_gang_that_runs(same_as_golden: Callable[[str, Path], None]) -> None:
    same_as_golden(where_table.render(describe_job(make_facts()), NOW), GOLDEN / "where-runs.txt")


def test_the_clusters_of_a_finished_gang_are_shown() -> None:
    """Its Placement has no workers any more."""
    place = {"state": "Ended", "workers": "0", "where": "2 east, 2 west"}
    assert [*where_table.placement_lines({"placement": place})] == ["Ended: 2 east, 2 west."]
    assert [*where_table.placement_lines({"placement": {**place, "state": "Waiting"}})] == [
        "Waiting: 0 workers, 2 east, 2 west."
    ]


def test_the_tree_of_a_starting_gang(same_as_golden: Callable[[str, Path], None]) -> None:
    loop = {
        "name": "ray-worker",
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
    }
    pods = [
        make_head(),
        make_worker(0),
        make_worker(1, up=False, containerStatuses=[loop]),
        make_worker(2, cluster="", up=False),
    ]
    facts = make_facts(
        pods=pods, worker_clusters={}, unread_reasons={"workerclusters": "You may not read workerclusters here."}
    )
    same_as_golden(where_table.render(describe_job(facts), NOW), GOLDEN / "where-starts.txt")


def test_the_tree_of_a_raycluster_has_no_job() -> None:
    facts = replace(make_facts(), kind="RayCluster")
    first, second, *_ = where_table.render(describe_job(facts), NOW).splitlines()[1:]
    assert first == "RayCluster demo/train" and second.startswith("├─ train-abc-head")


async def test_the_stages_of_a_waiting_gang(same_as_golden: Callable[[str, Path], None]) -> None:
    plan = await Sight({"east": 9}).preview.preview_plan(make_ray_job(make_group(99)), NAMESPACE, START)
    text = why.render(describe_job(in_queue()) | {"plan": plan, "planProblem": None})
    same_as_golden(text, GOLDEN / "why-waits.txt")


def test_programs_read_one_document(same_as_golden: Callable[[str, Path], None]) -> None:
    same_as_golden(json.dumps(describe_job(make_facts()), indent=2) + "\n", GOLDEN / "where-runs.json")


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d"), (-5, "0s")]
)
def test_ages_have_kubectls_format(seconds: int, said: str) -> None:
    when = START.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert where_table.format_age(when, START + timedelta(seconds=seconds)) == said
    assert where_table.format_age(None, START) == where_table.format_age("soon", START) == "-"


# --- requests and exit codes ------------------------------------------------------------------------------------------


async def test_each_kind_is_read_once_for_the_job_alone(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = answers(make_facts())
    assert await run(monkeypatch, "where", "train", "-n", NAMESPACE, "--kubeconfig", config) == 0
    said = capsys.readouterr()
    assert "└─ RayCluster train-abc" in said.out and "Runs: Its head runs" in said.out and said.err == ""
    assert [(one.path, one.query.get("labelSelector")) for one in server.asked] == [
        (f"{RAY}{IN}/rayjobs/train", None),
        (f"{KUEUE}{IN}/workloads", "kueue.x-k8s.io/job-uid=uid-of-job"),
        (f"{KUEUE}{IN}/localqueues/team-a", None),
        (f"{OURS}{IN}/placements", None),
        (f"{RAY}{IN}/rayclusters/train-abc", None),
        (f"/api/v1{IN}/pods", "ray.io/cluster=train-abc"),
        (f"{OURS}/workerclusters", None),
        (f"{KUEUE}/admissionchecks", None),
        (f"/api/v1{IN}/events", None),
    ]
    assert {one.method for one in server.asked} == {"GET"}
    assert {one.headers["Authorization"] for one in server.asked} == {f"Bearer {apiserver.TOKEN}"}


@pytest.mark.parametrize("verb", ["where", "why"])
async def test_json_and_yaml_are_equal(
    verb: str, server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        server.lists = answers(make_facts())
        assert await run(monkeypatch, verb, "train", "-n", NAMESPACE, "-o", output, "--kubeconfig", config) == 0
        found.append(read(capsys.readouterr().out))
    assert found[0] == found[1] == describe_job(make_facts())


@pytest.mark.parametrize(("move_from", "is_shown"), [("eats", True), ("east", False)])
async def test_an_event_about_a_corrected_annotation_is_not_shown(
    move_from: str,
    is_shown: bool,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The Event stays for an hour; the user may not read WorkerClusters."""
    facts = make_facts()
    facts.job["metadata"]["annotations"] = {names.MOVE_FROM_ANNOTATION: move_from}
    text = ignored_part(MoveFrom(("eats",)), ())
    event = {"type": "Warning", "message": text, "source": {"component": names.EVENT_SOURCE}, "metadata": {"name": "e"}}
    server.lists = [*answers(facts, {"workerclusters": refuses(403)}), page(event)]
    assert await run(monkeypatch, "why", "train", "-n", NAMESPACE, "--kubeconfig", config) == 0
    assert ("does not exist (eats)" in capsys.readouterr().out) == is_shown and not server.lists


async def test_a_ray_cluster_is_found_by_its_name_too(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["train"], ["raycluster/train"]):
        missing = [refuses(404, "NotFound")] if words == ["train"] else []
        job = make_ray_job(make_group(0), kind="RayCluster", queue=None)
        server.lists = [*missing, says(job), *[lists(1)] * 7]
        assert await run(monkeypatch, "where", *words, "-n", NAMESPACE, "-o", "json", "--kubeconfig", config) == 0
        assert json.loads(capsys.readouterr().out)["kind"] == "RayCluster"


def of_service(*releases: str) -> tuple[Raw, list[Answer]]:
    """A RayService with these RayClusters, where the pending one waits; and the API server's answers about them."""
    made = {one: make_ray_job(make_group(0), kind="RayCluster", queue=None) for one in releases}
    for release, one in made.items():
        one["metadata"] |= {"name": f"chat-{release}", "uid": f"uid-of-{release}"}
    status = {f"{one}ServiceStatus": {"rayClusterName": f"chat-{one}"} for one in releases}
    service = {"metadata": {"name": "chat", "namespace": NAMESPACE, "uid": "u"}, "status": status}
    each = [lists(1)] * 7  # workloads, placements, pods, worker clusters, checks, and the events of two objects
    return service, [says(service), *(says(one) for one in made.values()), *(each * len(made))]


@pytest.mark.parametrize("words", ["rayservice/chat", "rayservice.ray.io/chat", "chat"])
async def test_a_rayservice_shows_its_rayclusters(
    words: str, server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, said = of_service("active", "pending")
    server.lists = [*([refuses(404, "NotFound")] * 2 if words == "chat" else []), *said]
    assert await run(monkeypatch, "where", words, "-n", NAMESPACE, "--kubeconfig", config) == 0
    out = capsys.readouterr().out
    active, pending = out.index("RayService demo/chat, active:\n\nNAME"), out.index("RayService demo/chat, pending:")
    assert active < out.index("RayCluster demo/chat-active") < pending < out.index("RayCluster demo/chat-pending")
    server.lists = of_service("pending")[1]
    assert (
        await run(monkeypatch, "where", "rayservice/chat", "-n", NAMESPACE, "-o", "json", "--kubeconfig", config) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["name"]) == ("RayService", "chat")
    assert [(one["release"], one["name"]) for one in found["rayClusters"]] == [("pending", "chat-pending")]


async def test_a_rayservice_without_a_raycluster_waits(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service, _ = of_service("pending")
    for said in ([says({**service, "status": {}})], [says(service), refuses(404, "NotFound")]):
        server.lists = [*said]
        assert await run(monkeypatch, "why", "rayservice/chat", "-n", NAMESPACE, "--kubeconfig", config) == 3
        assert "RayService demo/chat has no RayCluster yet" in capsys.readouterr().out


async def test_the_exit_code_of_a_rayservice_is_that_of_its_worst_raycluster(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service, _ = of_service("active", "pending")
    runs, waits = make_facts(), make_facts(make_workload(reserved=None), pods=[], ray_cluster={})
    found = [
        job_reader.SelectedJobs([runs, waits], service, ["active", "pending"]),
        job_reader.SelectedJobs([runs], service, ["active"]),
    ]

    async def read(*_: object) -> job_reader.SelectedJobs:
        return found.pop(0)

    monkeypatch.setattr(job_reader, "read", read)
    server.lists = [refuses(403)]
    for code in (3, 0):
        assert await run(monkeypatch, "why", "rayservice/chat", "-n", NAMESPACE, "--kubeconfig", config) == code


async def test_missing_rights_are_reported_and_the_rest_is_shown(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no = refuses(403, "Forbidden", "no")
    server.lists = answers(make_facts(), {"workerclusters": no, "admissionchecks": no, "workloads": no})
    assert await run(monkeypatch, "where", "rayjob/train", "-n", NAMESPACE, "--kubeconfig", config) == 0
    out = capsys.readouterr().out
    assert "train-abc-worker-0" in out and "Placed: 2 of 2 workers, 1 east, 1 west." in out
    for kind in ("workloads", "workerclusters", "admissionchecks"):
        assert f"You may not read {kind} here: " in out


@pytest.mark.parametrize(
    ("facts", "code", "outcome"),
    [
        (make_facts(), 0, "Runs"),
        (make_facts(make_workload(reserved=None), pods=[], ray_cluster={}), 3, "Waits"),
        (make_facts(make_workload(check="Rejected", message="no"), pods=[], ray_cluster={}), 4, "Refused"),
        (make_facts({}, job=make_job(queue=None, rayClusterName=""), pods=[], ray_cluster={}), 4, "Refused"),
    ],
)
async def test_the_exit_codes_of_why(
    facts: JobFacts,
    code: int,
    outcome: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not facts.ray_cluster:
        facts = replace(facts, job={**facts.job, "status": {}})
    server.lists = [*answers(facts), refuses(403)]
    assert await run(monkeypatch, "why", "train", "-n", NAMESPACE, "-o", "json", "--kubeconfig", config) == code
    assert json.loads(capsys.readouterr().out)["outcome"] == outcome


async def test_a_waiting_job_shows_the_plan_if_the_user_has_the_right(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = in_queue()
    plan = await Sight({"east": 9}).preview.preview_plan(make_ray_job(make_group(99)), NAMESPACE, START)
    server.lists = [*answers(facts), says(plan)]
    assert await run(monkeypatch, "why", "train", "-n", NAMESPACE, "--kubeconfig", config) == 3
    out = capsys.readouterr().out
    assert "Waits: 99 workers needed at once, 9 fit now. It starts by itself" in out and "ASKED   CLUSTER" in out
    asked = server.asked[-1]
    assert (asked.method, asked.body["namespace"], asked.body["object"]["kind"]) == ("POST", NAMESPACE, "RayJob")
    assert "status" not in asked.body["object"]

    server.lists = [*answers(facts), refuses(403, "Forbidden", 'User "jane" cannot create')]
    assert await run(monkeypatch, "why", "train", "-n", NAMESPACE, "--kubeconfig", config) == 3
    out = capsys.readouterr().out
    assert "No plan is shown: You may not ask for plans here" in out and "ASKED" not in out

    server.lists = [*answers(facts), says({"fits": True, "clusters": [{}]})]
    assert await run(monkeypatch, "why", "train", "-n", NAMESPACE, "--kubeconfig", config) == 3
    assert "the controller has another version" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["where", "why"])
@pytest.mark.parametrize(
    ("word", "said", "code", "sentence"),
    [
        (
            "train",
            [refuses(404, "NotFound")] * 3,
            2,
            "Namespace demo has no RayJob, RayCluster or RayService train that you may see.",
        ),
        (
            "rayjob/train",
            [refuses(403)],
            2,
            "Namespace demo has no RayJob train that you may see. You may not read rayjobs here: they are not shown.",
        ),
        (
            "pod/train",
            [],
            2,
            ("pod/train is not a job: name it as NAME, rayjob/NAME, raycluster/NAME or rayservice/NAME."),
        ),
        ("rayjob/", [], 2, "rayjob/ is not a job: name it as NAME, rayjob/NAME, raycluster/NAME or rayservice/NAME."),
        ("..", [], 2, "..: no object can have such a name."),
        (
            "train",
            [refuses(401, "Unauthorized")],
            1,
            ("The manager cluster does not accept your credentials: log in again, or check your kubeconfig."),
        ),
        ("train", [refuses(429, "TooManyRequests", "Ask again.")], 1, "Ask again."),
        (
            "train",
            [apiserver.text(apiserver.PAGE)],
            1,
            "The manager cluster cannot be reached: what answers there is no Kubernetes API server",
        ),
    ],
)
async def test_trouble_is_one_sentence(
    word: str,
    said: list[Answer],
    code: int,
    sentence: str,
    verb: str,
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.lists = [*said]
    assert await run(monkeypatch, verb, word, "-n", NAMESPACE, "--kubeconfig", config) == code
    assert capsys.readouterr() == ("", f"{sentence}\n")


@pytest.mark.parametrize("verb", ["list", "where", "why", "top", "check"])
def test_help_has_an_example_and_the_exit_codes(verb: str) -> None:
    words = [sys.executable, "-m", "adapter", verb, "--help"]
    text = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"kubectl rayspan {verb}" in text and "exit code: 0 " in text


# --- the fleet --------------------------------------------------------------------------------------------------------


def fleet(plan: Answer) -> list[Answer]:
    """The API server's answers to `top`, in the order in which the kinds are read."""
    connected = {"conditions": [make_condition("Connected", reason="Connected")], "workers": 3}
    clusters: list[Raw] = [
        {"metadata": {"name": "east"}, "spec": {"zone": "us-east-1a"}, "status": connected},
        {"metadata": {"name": "west"}, "spec": {"draining": True}, "status": {}},
    ]
    flavors = [{"coveredResources": ["cpu", "pods"], "flavors": [{"name": "any"}]}]
    checked = {"admissionChecksStrategy": {"admissionChecks": [{"name": "rayspan"}]}, "resourceGroups": flavors}
    queues: list[Raw] = [{"metadata": {"name": "team-a"}, "spec": checked}, {"metadata": {"name": "local"}, "spec": {}}]
    active = make_condition(names.ACTIVE, reason="Ready")
    check = {**make_check(), "status": {"conditions": [active]}}
    local: list[Raw] = [
        {"metadata": {"name": name, "namespace": "demo"}, "spec": {"clusterQueue": queue}}
        for name, queue in (("team-a", "team-a"), ("here", "local"))
    ]
    pods = [make_worker(0), make_worker(1, up=False), make_worker(2, cluster="gone")]
    return [page(*clusters), page(*pods), page(*queues), page(check), page(make_policy()), page(*local), plan]


async def test_top_shows_the_fleet(
    server: Server,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    same_as_golden: Callable[[str, Path], None],
) -> None:
    plan = await Sight({"east": 9}).preview.preview_plan(make_ray_job(make_group(1)), NAMESPACE, START)
    server.lists = fleet(says(plan))
    assert await run(monkeypatch, "top", "--kubeconfig", config) == 0
    same_as_golden(capsys.readouterr().out, GOLDEN / "top.txt")
    assert [(one.path, one.query.get("labelSelector")) for one in server.asked if one.method == "GET"] == [
        (f"{OURS}/workerclusters", None),
        ("/api/v1/pods", "rayspan.dev/placement"),
        (f"{KUEUE}/clusterqueues", None),
        (f"{KUEUE}/admissionchecks", None),
        (f"{OURS}/dispatchpolicies", None),
        (f"{KUEUE}/localqueues", None),
    ]
    (asked,) = (one for one in server.asked if one.method == "POST")
    (group,) = asked.body["object"]["spec"]["workerGroupSpecs"]
    assert group["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


async def test_top_does_not_count_a_pod_whose_slot_left_the_placement(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_placement(make_workload(), shares={"west": {"workers": 2}})
    of = {"placement": place["metadata"]["name"], "listed": "east/1/role-workers/1 west/1/role-workers/2"}
    clusters, _, *rest = fleet(refuses(403))
    pods = page(make_pod("a", index="0", **of), make_pod("b", index="1", **of))
    server.lists = [clusters, pods, *rest[:3], page(place), *rest[3:]]
    assert await run(monkeypatch, "top", "--kubeconfig", config, "-o", "json") == 0
    found = {one["name"]: one["workers"] for one in json.loads(capsys.readouterr().out)["clusters"]}
    assert found == {"east": {}, "west": {"Pending": 1}}


async def test_top_without_rights_shows_the_rest(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.lists = fleet(refuses(403, "Forbidden", 'User "jane" cannot create'))
    assert await run(monkeypatch, "top", "--kubeconfig", config, "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    east, gone, west = sorted(found["clusters"], key=lambda one: str(one["name"]))
    assert (east["workers"], east["quota"], west["cordoned"]) == ({"Pending": 1, "Running": 1}, None, True)
    assert (gone["name"], gone["connected"]) == ("gone", None)
    assert found["notes"] == [
        (
            "Quota is not shown: You may not ask for plans here; an administrator of the manager "
            "cluster can allow it with `kubectl -n rayspan-system create rolebinding rayspan-plan "
            "--role=rayspan-plan --user=jane`."
        )
    ]
    server.lists = [refuses(403)] * 6
    assert await run(monkeypatch, "top", "--kubeconfig", config) == 0, "what may not be read is not taken for missing"
    out = capsys.readouterr().out
    assert out.startswith("The WorkerClusters may not be read.\n") and "You may not read workerclusters here" in out


async def test_top_says_when_nothing_can_be_dispatched(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = fleet(refuses(503, "NotReady", "Not yet."))
    server.lists = [page(make_worker_cluster("east", cordoned=True)), *said[1:]]
    assert await run(monkeypatch, "top", "--kubeconfig", config) == 3
    why = "none of east, west of DispatchPolicy default is connected and takes new workers"
    assert f"\n\nNothing can be dispatched: {why}; see" in capsys.readouterr().out
    server.lists = [page(make_worker_cluster("east", cordoned=True)), *said[1:]]
    assert await run(monkeypatch, "top", "--kubeconfig", config, "-o", "json") == 3
    assert why in json.loads(capsys.readouterr().out)["stopped"]
