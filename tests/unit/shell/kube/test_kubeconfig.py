"""A kubeconfig from elsewhere may not act here, one that cannot be used is a sentence, and nothing of it stays behind."""

import base64
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from adapter.shell.kube.client import Client
from adapter.shell.kube.kubeconfig import FORBIDDEN_CLUSTER, FORBIDDEN_USER, BadLogin
from tests.unit.apiserver import TOKEN, kubeconfig

Raw = dict[str, Any]
AUTHORITY = Path(certifi.where()).read_bytes()
SECRET = "hunter2"
PROGRAM = {"command": "/bin/sh", "args": ["-c", SECRET], "apiVersion": "client.authentication.k8s.io/v1"}
ACTING = {"exec": PROGRAM, "auth-provider": {"name": "oidc", "config": {"client-secret": SECRET}}}


def test_each_forbidden_field_has_its_case() -> None:
    assert set(FORBIDDEN_USER) == {"exec", "auth-provider", "tokenFile", "client-certificate", "client-key"}
    assert set(FORBIDDEN_CLUSTER) == {"certificate-authority"}


@pytest.mark.parametrize(("part", "field"), [*(("user", f) for f in FORBIDDEN_USER), ("cluster", FORBIDDEN_CLUSTER[0])])
async def test_a_kubeconfig_that_would_act_here_is_refused(part: str, field: str) -> None:
    """Another cluster's admin writes it; our process has files and a token that he has not."""
    odd: Raw = {field: ACTING.get(field, f"/etc/{SECRET}")}
    user, cluster = ({"token": SECRET, **odd}, {}) if part == "user" else ({"token": SECRET}, odd)
    with pytest.raises(BadLogin) as found:
        await Client.from_kubeconfig(yaml.safe_dump(kubeconfig("http://127.0.0.1:1", user=user, cluster=cluster)))
    assert str(found.value) == f"{part}s[].{part}.{field} is not allowed; put the data itself into the kubeconfig"


async def test_also_where_no_context_uses_it() -> None:
    """A loader may read more than the current context."""
    content = kubeconfig("http://127.0.0.1:1")
    content["users"].append({"name": "other", "user": {"exec": PROGRAM}})
    with pytest.raises(BadLogin, match=r"users\[\]\.user\.exec"):
        await Client.from_kubeconfig(yaml.safe_dump(content))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="nothing"),
        pytest.param(SECRET, id="a word"),
        pytest.param(f"- {SECRET}", id="a list"),
        pytest.param(f"token: {{{SECRET}", id="no YAML"),
        pytest.param("token: !!python/name:os.system", id="a YAML tag that would run"),
        pytest.param(f"users: [{{name: us, user: {{token: {SECRET}}}}}]", id="no context"),
        pytest.param(yaml.safe_dump(kubeconfig("x") | {"contexts": None}), id="nulls"),
        pytest.param(yaml.safe_dump(kubeconfig("x") | {"clusters": [{"name": "there"}]}), id="no server"),
        pytest.param(yaml.safe_dump(kubeconfig("x", cluster={"server": 5})), id="a number"),
        pytest.param(
            yaml.safe_dump(
                kubeconfig("https://x", user={"client-certificate-data": SECRET, "client-key-data": SECRET})
            ),
            id="a certificate that is none",
        ),
        pytest.param(
            yaml.safe_dump(kubeconfig("https://x", cluster={"certificate-authority-data": SECRET})), id="an authority"
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_a_sentence(content: str) -> None:
    with pytest.raises(BadLogin) as found:
        await Client.from_kubeconfig(content)
    assert str(found.value)
    assert SECRET not in str(found.value)
    assert TOKEN not in str(found.value)


ODD = (
    "users: 5",
    "users: [x]",
    "users: [null]",
    "users: {a: b}",
    "users: [{user: 5}]",
    "clusters: [{cluster: 5}]",
    "a: 2026-99-99",
    "a: " + "[" * 3000,
)


@pytest.mark.parametrize("content", ODD, ids=lambda content: content[:30])
async def test_an_odd_kubeconfig_is_a_bad_login_and_nothing_else(content: str) -> None:
    with pytest.raises(BadLogin):
        await Client.from_kubeconfig(content)


async def test_no_certificate_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a login that works, and of one that does not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for data, works in ((AUTHORITY, True), (b"no certificate", False)):
        encoded = base64.b64encode(data).decode()
        content = yaml.safe_dump(kubeconfig("https://x", cluster={"certificate-authority-data": encoded}))
        with nullcontext() if works else pytest.raises(BadLogin):
            await (await Client.from_kubeconfig(content)).close()
        assert os.listdir(tmp_path) == []
