"""`rayspan preflight` from its user's view: rejections, output and exit codes. Tests on clusters cover its findings."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from adapter import names
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import make_worker_cluster

CLUSTERS = "/apis/rayspan.dev/v1alpha1/workerclusters"
PODS = "/api/v1/namespaces/demo/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/rayspan-system/deployments/rayspan-controller"
SECRET = "/api/v1/namespaces/rayspan-system/secrets/east"
NOT_FOUND = refuses(404, "NotFound", "not found")
CONTROLLER = {"spec": {"template": {"spec": {"containers": [{"image": "example.com/rayspan:1"}]}}}}


def listing(*objects: Raw) -> Answer:
    return says({"kind": "List", "items": list(objects)})


MANAGER: dict[str, Answer] = {
    "GET /api/v1/namespaces/demo": says({"kind": "Namespace"}),
    f"GET {DEPLOYMENT}": says(CONTROLLER),
    f"GET {CLUSTERS}": listing(make_worker_cluster()),
    "GET /api/v1/nodes": listing(),
    "GET /api/v1/pods": listing(),
    f"GET {PODS}": listing(),
    f"POST {PODS}": refuses(403, "Forbidden", "exceeded quota"),
}


async def preflight(server: Server, config: Path, *words: str, **answers: Answer) -> tuple[int, str, str]:
    """Runs the command as a process and returns its output; `answers` adds to those of a manager without queues."""
    known = MANAGER | answers

    async def route(request: web.Request) -> web.StreamResponse:
        return await known.get(f"{request.method} {request.path}", NOT_FOUND)(request)

    server.lists = [route] * 99
    command = [sys.executable, "-m", "adapter", "preflight", "-n", "demo", "--kubeconfig", str(config), *words]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=pipe, stderr=pipe)
    said, complained = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode(), complained.decode()


@pytest.mark.parametrize(
    ("words", "answers", "sentence"),
    [
        (["--worker-cluster", "atlantis"], {}, "There is no WorkerCluster atlantis; there are east.\n"),
        ([], {f"GET {CLUSTERS}": listing()}, "There is no WorkerCluster yet; there is none.\n"),
        (
            [],
            {"GET /api/v1/namespaces/demo": NOT_FOUND},
            "There is no namespace demo in the manager cluster; name one with -n.\n",
        ),
        (
            [],
            {f"GET {DEPLOYMENT}": NOT_FOUND},
            (
                "There is no Deployment rayspan-controller in namespace rayspan-system whose image could "
                "be used; name one with --image.\n"
            ),
        ),
        (["--timeout", "0s"], {}, "--timeout 0s leaves no time to start a pod; name a longer one, such as 60s.\n"),
    ],
)
async def test_missing_objects_are_one_sentence(
    words: list[str], answers: dict[str, Answer], sentence: str, server: Server, config: Path
) -> None:
    assert await preflight(server, config, *words, **answers) == (2, "", sentence)
    assert {one.method for one in server.asked} <= {"GET"}


@pytest.mark.parametrize("words", [["--timeout", "soon"], ["-o", "wide"], ["east"], ["--worker-cluster"]])
async def test_a_wrong_command_line_is_reported(words: list[str], server: Server, config: Path) -> None:
    code, said, complained = await preflight(server, config, *words)
    assert (code, said) == (2, "") and "preflight: error: " in complained.replace(
        "rayspan: error:", "preflight: error:"
    )
    assert not server.asked


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            refuses(401),
            ("The manager cluster does not accept your credentials: log in again, or check your kubeconfig.\n"),
        ),
        (
            refuses(403, "Forbidden", "workerclusters is forbidden"),
            "A preflight needs an administrator's rights in the manager cluster: workerclusters is forbidden\n",
        ),
        (NOT_FOUND, "There are no WorkerClusters: Rayspan is not installed in this cluster.\n"),
    ],
)
async def test_a_missing_right_is_reported(answer: Answer, sentence: str, server: Server, config: Path) -> None:
    assert await preflight(server, config, **{f"GET {CLUSTERS}": answer}) == (1, "", sentence)


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_obstacles_for_workers_are_reported(output: str, server: Server, config: Path) -> None:
    """East has no kubeconfig and the manager no capacity for a pod: nothing can be tried, so nothing is written."""
    code, said, complained = await preflight(server, config, "-o", output)
    found = json.loads(said) if output == "json" else yaml.safe_load(said)
    assert (code, complained, found["ready"], found["image"]) == (3, "", False, "example.com/rayspan:1")
    assert [one["message"] for one in found["findings"] if one["outcome"] == "failure"] == [
        ("In the manager no probe pod ran successfully: it could not be created: 403 Forbidden: exceeded quota."),
        "Secret east does not exist in rayspan-system; create it with a kubeconfig.",
    ]
    assert [one["reachable"] for one in found["clusters"]] == [None, None]
    assert not [one for one in server.asked if one.method == "PATCH"]


async def test_leftovers_of_this_run_are_listed_by_its_label(server: Server, config: Path) -> None:
    await preflight(server, config, "--image", "python:3")
    (made,) = (one for one in server.asked if one.method == "POST")
    run = made.body["metadata"]["labels"][names.PROBE_LABEL]
    assert made.body["spec"]["containers"][0]["image"] == "python:3"
    last = [one.query for one in server.asked if one.path == PODS and one.method == "GET"][-1]
    assert last == {"limit": "100", "labelSelector": f"rayspan.dev/probe={run}"}
    assert not [one for one in server.asked if one.path == DEPLOYMENT], "the image was named"


async def test_addresses_of_remote_workers_do_not_count_as_the_managers(server: Server, config: Path) -> None:
    await preflight(server, config)
    (asked,) = (one.query for one in server.asked if one.path == "/api/v1/pods")
    assert asked["labelSelector"] == "!rayspan.dev/cluster"


async def test_no_content_of_a_secret_is_shown(server: Server, config: Path) -> None:
    kubeconfig = {
        "data": {"kubeconfig": "c3dvcmRmaXNoOiBbdGhlIHRva2Vu"}
    }  # "swordfish: [the token", which is invalid YAML
    code, said, complained = await preflight(server, config, **{f"GET {SECRET}": says(kubeconfig)})
    assert code == 3 and "swordfish" not in said + complained
    assert "Secret east in rayspan-system holds no usable kubeconfig: it is not YAML; create it again with" in said
