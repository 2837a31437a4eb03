"""The snippets of docs/readiness.md make Argo CD show the right health. A real Lua runs them, without Argo CD.

As in Argo CD, a snippet is a function's body that reads `obj`, returns a table, and has little of Lua's library.
"""

import re

import lupa
import pytest
import yaml

from adapter import names
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO

_CHECK = "kueue.x-k8s.io_AdmissionCheck"
_OURS = ("rayspan.dev_WorkerCluster", "rayspan.dev_DispatchPolicy")
_RUN = """\
function(text, obj)
  local known = {obj = obj, ipairs = ipairs, pairs = pairs, string = string, table = table, tostring = tostring}
  return assert(load(text, "snippet", "t", known))()
end
"""


def _snippets() -> dict[str, str]:
    text = (REPO / "docs/readiness.md").read_text()
    (block,) = (one for one in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "health." in one)
    found: dict[str, str] = yaml.safe_load(block)["data"]
    return {name.removeprefix("resource.customizations.health."): body for name, body in found.items()}


def _health(kind: str, raw: Raw) -> tuple[str, str]:
    lua = lupa.LuaRuntime()
    found = lua.eval(_RUN)(_snippets()[kind], lua.table_from(raw, recursive=True))
    return found.status, found.message


def _said(
    status: str, reason: str, *, kind: str = "Ready", seen: int = 2, controller: str = names.CONTROLLER_NAME
) -> Raw:
    said = {"type": kind, "status": status, "reason": reason, "message": "A sentence.", "observedGeneration": seen}
    other = {"type": "Connected", "status": "True", "reason": "Connected", "message": "no", "observedGeneration": 2}
    return {
        "metadata": {"generation": 2},
        "spec": {"controllerName": controller},
        "status": {"conditions": [other, said]},
    }


BARE: Raw = {"metadata": {"generation": 1}, "spec": {"controllerName": names.CONTROLLER_NAME}}


def test_each_kind_has_its_snippet() -> None:
    assert {*_snippets()} == {*_OURS, _CHECK}


@pytest.mark.parametrize("kind", _OURS)
@pytest.mark.parametrize(
    ("raw", "health"),
    [
        pytest.param(_said("True", "Ready"), "Healthy", id="ready"),
        pytest.param(_said("True", "Cordoned"), "Suspended", id="cordoned"),
        pytest.param(_said("True", "Draining"), "Suspended", id="drained"),
        pytest.param(_said("False", "BadConfiguration"), "Degraded", id="not ready"),
        pytest.param(_said("Unknown", "Unreachable"), "Degraded", id="unreachable"),
        pytest.param(_said("True", "Ready", seen=1), "Progressing", id="a condition of an older generation"),
        pytest.param(_said("True", "Ready", kind="Reachable"), "Progressing", id="another condition"),
        pytest.param(BARE, "Progressing", id="no condition"),
        pytest.param({**BARE, "status": {}}, "Progressing", id="an empty status"),
    ],
)
def test_our_objects_are_healthy_when_ready(kind: str, raw: Raw, health: str) -> None:
    said = "Rayspan has said nothing of it yet." if health == "Progressing" else "A sentence."
    assert _health(kind, raw) == (health, said)


@pytest.mark.parametrize(
    ("raw", "health"),
    [
        pytest.param(_said("True", "Ready", kind="Active"), "Healthy", id="ready"),
        pytest.param(_said("True", "GateMissing", kind="Active"), "Degraded", id="active, with nothing dispatched"),
        pytest.param(_said("False", "BadParameters", kind="Active"), "Degraded", id="inactive"),
        pytest.param(
            _said("True", "Ready", kind="Active", seen=1),
            "Progressing",
            id="a condition of an older generation",
        ),
        pytest.param(
            _said("True", "Any", kind="Active", seen=1, controller="x"),
            "Healthy",
            id="active, of another controller",
        ),
        pytest.param(
            _said("False", "Any", kind="Active", seen=1, controller="x"),
            "Degraded",
            id="inactive, of another controller",
        ),
        pytest.param(BARE, "Progressing", id="no condition"),
    ],
)
def test_a_check_is_healthy_when_jobs_are_dispatched_by_it(raw: Raw, health: str) -> None:
    assert _health(_CHECK, raw)[0] == health
