"""Parses the paths that the access server answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.access import access_request
from adapter.access.access_request import AccessRequest, parse_path

KEY = "k" * 43
BASE = f"/default/kubectl-x7k2p/{KEY}"
PODS = f"{BASE}/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("path", "what", "pod"),
    [
        (f"{BASE}/api", access_request.VERSIONS, ""),
        (f"{BASE}/apis", access_request.GROUPS, ""),
        (f"{BASE}/api/v1", access_request.RESOURCES, ""),
        (f"{PODS}/worker-a", access_request.POD, "worker-a"),
        (f"{PODS}/worker-a/log", "log", "worker-a"),
        (f"{PODS}/worker-a/exec", "exec", "worker-a"),
        (f"{PODS}/worker-a/portforward", "portforward", "worker-a"),
    ],
)
def test_kubectls_paths_are_parsed(path: str, what: str, pod: str) -> None:
    assert parse_path(path) == AccessRequest("default", "kubectl-x7k2p", KEY, what, pod)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="an empty path"),
        pytest.param("/healthz", id="another path"),
        pytest.param(BASE, id="a path without a request"),
        pytest.param(f"{PODS}", id="all pods"),
        pytest.param(f"{PODS}/worker-a/", id="a slash at the end"),
        pytest.param(f"{PODS}/worker-a/attach", id="a subresource that has no grants"),
        pytest.param(f"{PODS}/worker-a/proxy/x", id="a subresource proxy"),
        pytest.param(f"{PODS}/worker-a/log/x", id="a path below a log"),
        pytest.param(f"{PODS}/../../secrets/x", id="dots in the path"),
        pytest.param(f"{PODS}/%2e%2e/log", id="escaped dots"),
        pytest.param(f"{PODS}/worker-a%2flog", id="an escaped slash"),
        pytest.param(f"{BASE}/api/v1/namespaces/other/pods/worker-a", id="another namespace than the grant's"),
        pytest.param(f"{BASE}/api/v1/namespaces/default/secrets/worker-a", id="the path of a Secret"),
        pytest.param(f"/default/kubectl-x7k2p/{KEY[1:]}/api", id="a key that is too short"),
        pytest.param(f"/default/kubectl-x7k2p/{KEY}k/api", id="a key that is too long"),
        pytest.param(f"/Default/kubectl-x7k2p/{KEY}/api", id="an invalid namespace"),
        pytest.param(f"//kubectl-x7k2p/{KEY}/api", id="an empty namespace"),
    ],
)
def test_other_paths_are_not_parsed(path: str) -> None:
    assert parse_path(path) is None


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="/"), max_size=20))
def test_a_pods_name_cannot_leave_its_path(word: str) -> None:
    found = parse_path(f"{PODS}/{word}/log")
    assert found is None or (found.pod == word and ".." not in word.split("/") and "%" not in word)
