"""What makes a cluster a worker of a manager: the objects of both sides, the kubeconfig, and cases of mistaken
identity."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from adapter import membership, names
from adapter.cli.membership import membership_objects
from adapter.membership import ApiServerAddress, Membership, MembershipError, MembershipState
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube import kubeconfig
from hack.lab.base.paths import REPO

NOW = datetime(2026, 11, 23, 8, tzinfo=UTC)
EAST = Membership("east", "m" * 10, "w" * 10)
THERE = ApiServerAddress("https://10.1.2.3:6443")


def signed(**joined: str) -> Raw:
    """The account of a worker cluster, as managers call the cluster."""
    annotations = {f"{names.JOINED_PREFIX}{manager}": name for manager, name in joined.items()}
    return {"metadata": {"name": names.WORKER_ACCOUNT, "annotations": annotations}}


def held(token: str = "swordfish", there: ApiServerAddress = THERE, ends: datetime = NOW + timedelta(days=9)) -> Raw:
    return membership.kubeconfig_secret(EAST, membership.build_kubeconfig(there, token), ends)


def cluster(**source: Raw) -> Raw:
    return {"metadata": {"name": "east"}, "spec": {"source": source}}


# --- the objects -----------------------------------------------------------------------------------------------------


def test_the_worker_side_is_what_the_overlay_installs() -> None:
    """Except for the name by which the manager knows the cluster."""
    folder = REPO / "manifests/rbac"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    installed = [one for file in listed for one in yaml.safe_load_all((folder / file).read_text())]
    made = membership.worker_cluster_objects(
        EAST, membership_objects.account_objects(), membership_objects.namespace_binding(), ["default"]
    )
    (mine,) = (one for one in made if one["kind"] == "ServiceAccount")
    assert mine["metadata"].pop("annotations") == {f"{names.JOINED_PREFIX}{EAST.manager_identity}": "east"}
    assert made == installed


def test_each_kind_of_object_has_a_place() -> None:
    made = membership.worker_cluster_objects(
        EAST, membership_objects.account_objects(), membership_objects.namespace_binding(), ["a", "b"]
    )
    paths = [membership_objects.object_path(one) for one in [*made, held(), membership.worker_cluster_manifest("east")]]
    assert len(set(paths)) == len(paths)
    assert paths[-4:-2] == [
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/rayspan-worker-tenant"
        for namespace in "ab"
    ]


def test_the_account_gets_the_name_of_this_manager_alone() -> None:
    """Another manager's name is applied by that manager, so that neither removes nor restores it."""
    made = membership.worker_cluster_objects(
        EAST, membership_objects.account_objects(), membership_objects.namespace_binding(), []
    )
    (account,) = (body for body in made if body["kind"] == "ServiceAccount")
    assert account["metadata"]["annotations"] == signed(mmmmmmmmmm="east")["metadata"]["annotations"]
    assert membership.field_manager(EAST) == f"rayspan.dev/join-{EAST.manager_identity}"
    assert membership.other_managers(EAST, signed(other="x", mmmmmmmmmm="east")) == ["other"]


def test_the_address_of_an_earlier_join_is_read_back() -> None:
    address = ApiServerAddress("https://10.0.0.5:6443", "PEM", "kubernetes", "http://proxy:1")
    text = membership.build_kubeconfig(address, "swordfish")
    assert membership.address_in_kubeconfig(text) == address
    for other in (
        "",
        "[]",
        "{",
        text.replace("token:", "username: a\n    token:"),
        "clusters: [{cluster: {server: x}}]",
    ):
        assert membership.address_in_kubeconfig(other) is None


def test_a_printed_membership_shows_no_token() -> None:
    assert "swordfish" not in repr(membership.AccountToken("swordfish", NOW))


# --- the kubeconfig --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "there",
    [
        THERE,
        ApiServerAddress(
            "https://[fd00::1]:6443/k8s/c-1", tls_server_name="east.example.com", proxy_url="http://10.0.0.1:3128"
        ),
    ],
)
async def test_the_controller_accepts_the_kubeconfig(there: ApiServerAddress) -> None:
    login = await kubeconfig.login_of_text(membership.build_kubeconfig(there, "swordfish"))
    await login.close()
    assert login.address == there


def test_a_renewed_kubeconfig_differs_by_its_token_only() -> None:
    there = ApiServerAddress("https://10.1.2.3:6443", "PEM", "east.example.com")
    before = membership.build_kubeconfig(there, "swordfish")
    assert membership.with_token(before, "marlin") == membership.build_kubeconfig(there, "marlin")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "a: b",
        "users: []",
        "users: [{name: a, user: {client-key-data: eA==}}]",
        "users: [{name: a, user: {token: x, username: y}}]",
        "users: [{name: a, user: {token: x}}, {name: b, user: {token: y}}]",
        "users: 3",
    ],
)
def test_a_kubeconfig_with_more_than_a_token_is_not_renewed(text: str) -> None:
    with pytest.raises(MembershipError, match="it is not a kubeconfig with one user that has a token"):
        membership.with_token(text, "marlin")


@pytest.mark.parametrize(
    ("standing", "kept"),
    [
        (None, False),
        ({}, False),
        ({"data": {"kubeconfig": "no base64"}}, False),
        (held(), True),
        (held(ends=NOW + timedelta(minutes=59)), False),
        (held(ends=NOW - timedelta(days=1)), False),
        (held(there=ApiServerAddress("https://10.9.9.9:6443")), False),
        (held() | {"metadata": {}}, False),
    ],
)
def test_a_token_is_kept_while_nothing_changes(standing: Raw | None, kept: bool) -> None:
    token = membership.reusable_token(EAST, MembershipState(secret=standing, service_account=signed()), THERE, NOW)
    assert (token.value if token else None) == ("swordfish" if kept else None)


def test_the_token_of_a_deleted_account_is_not_kept() -> None:
    assert membership.reusable_token(EAST, MembershipState(secret=held()), THERE, NOW) is None


# --- mistaken identity -----------------------------------------------------------------------------------------------

OTHER = membership.kubeconfig_secret(Membership("east", EAST.manager_identity, "another"), "", NOW)
OWN = cluster(kubeConfig={"secretRef": {"name": "east"}})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (MembershipState(), ""),
        (MembershipState(OWN, held(), signed(mmmmmmmmmm="east")), ""),
        (MembershipState(OWN, {"data": {}}, signed()), ""),  # as created by hand: it is adopted
        (MembershipState(service_account=signed(other="x")), ""),
        (
            MembershipState(service_account=signed(mmmmmmmmmm="west")),
            (
                "This cluster has joined as west: its capacity would be counted twice. Remove it first "
                "with `kubectl rayspan leave west`."
            ),
        ),
        (
            MembershipState(secret=OTHER),
            (
                "east is another cluster than the one that you named: Secret east in rayspan-system "
                "leads there. Choose another name, or remove that cluster first."
            ),
        ),
        (
            MembershipState(cluster(multiKueueClusterRef={"name": "east"})),
            (
                "WorkerCluster east uses the kubeconfig of a MultiKueueCluster "
                "(spec.source.multiKueueClusterRef): renew it there, or choose another name."
            ),
        ),
        (
            MembershipState(cluster(clusterProfileRef={"name": "east"})),
            (
                "WorkerCluster east uses a ClusterProfile (spec.source.clusterProfileRef), "
                "and the token beside it: renew that, or choose another name."
            ),
        ),
        (
            MembershipState(cluster(kubeConfig={"secretRef": {"name": "login"}})),
            (
                "WorkerCluster east uses Secret login (spec.source.kubeConfig.secretRef), and "
                "join and rotate write Secret east: set that there, or choose another name."
            ),
        ),
    ],
)
def test_which_clusters_may_not_join(found: MembershipState, said: str) -> None:
    assert membership.join_problem(EAST, found) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (MembershipState(), ""),
        (MembershipState(OWN, held(), signed(mmmmmmmmmm="east", other="x")), ""),
        (MembershipState(service_account=signed(mmmmmmmmmm="east")), ""),
        (MembershipState(OWN, OTHER), "east is another cluster than the one that you named: "),
        (
            MembershipState(OWN, held(), signed(mmmmmmmmmm="west")),
            "The worker cluster that you named has joined as west, not as east: ",
        ),
        (
            MembershipState(OWN, held(), signed(other="east")),
            "The account rayspan-worker of the worker cluster that you named was not created by ",
        ),
        (
            MembershipState(OWN),
            "The worker cluster that you named has no account rayspan-worker, and nothing identifies it ",
        ),
        (
            MembershipState(OWN, {"data": {}}),
            "The worker cluster that you named has no account rayspan-worker, and nothing identifies it ",
        ),
        (MembershipState(OWN, held()), ""),
    ],
)
def test_whether_the_cluster_is_the_registered_one(found: MembershipState, said: str) -> None:
    assert membership.identity_problem(EAST, found).startswith(said) and bool(
        membership.identity_problem(EAST, found)
    ) == bool(said)


def test_a_manager_cannot_join_itself() -> None:
    same = Membership("east", "m", "m")
    for sentence in (
        membership.join_problem(same, MembershipState()),
        membership.identity_problem(same, MembershipState()),
    ):
        assert sentence.startswith("Both logins lead to the same cluster")


def binding(**other: Any) -> Raw:
    subject = {"kind": "ServiceAccount", "namespace": "rayspan-system", "name": "rayspan-worker"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "rayspan-worker-tenant"}
    return {"roleRef": role, "subjects": [subject], **other}


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        (binding(), True),
        (binding(subjects=None), False),
        (binding(subjects=[*binding()["subjects"], {"kind": "User", "name": "jane"}]), False),
        (binding(subjects=[{"kind": "ServiceAccount", "namespace": "kueue-system", "name": "multikueue"}]), False),
        (binding(roleRef={"kind": "ClusterRole", "name": "rayspan-worker-logs"}), True),
        (binding(roleRef={"kind": "ClusterRole", "name": "rayspan-worker-exec"}), True),
        (binding(roleRef={"kind": "ClusterRole", "name": "view"}), False),
        (binding(roleRef={"kind": "Role", "name": "rayspan-worker-tenant"}), False),
    ],
)
def test_which_bindings_open_a_namespace_to_the_account_alone(raw: Raw, ours: bool) -> None:
    assert membership.is_namespace_binding(raw) is ours


@pytest.mark.parametrize(
    ("there", "asked", "said"),
    [
        (THERE, False, ""),
        (ApiServerAddress("https://east.example.com"), False, ""),
        (ApiServerAddress("https://127.0.0.1:6443"), False, "is this machine's own address"),
        (ApiServerAddress("https://localhost:6443"), False, "is this machine's own address"),
        (ApiServerAddress("https://[::1]:6443"), False, "is this machine's own address"),
        (ApiServerAddress("https://127.0.0.1:6443"), True, ""),  # a controller on this machine
        (ApiServerAddress("http://10.1.2.3:6443"), True, "is not https"),
        (ApiServerAddress("https://10.1.2.3:6443", verified=False), True, "does not verify the API server"),
    ],
)
def test_which_address_is_registered(there: ApiServerAddress, asked: bool, said: str) -> None:
    sentence = membership.address_problem(there, explicit=asked)
    assert said in sentence and bool(sentence) == bool(said)


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (timedelta(days=90), "2027-02-21 08:00 UTC, in 90 days"),
        (timedelta(days=1, hours=3), "2026-11-24 11:00 UTC, in 1 day"),
        (timedelta(hours=24, seconds=-9), "2026-11-24 07:59 UTC, in 1 day"),
        (timedelta(hours=23, minutes=30), "2026-11-24 07:30 UTC, in 23 hours"),
        (timedelta(minutes=10), "2026-11-23 08:10 UTC, in 10 minutes"),
        (timedelta(minutes=-10), "2026-11-23 07:50 UTC, which has passed"),
    ],
)
def test_the_description_of_a_tokens_end(left: timedelta, said: str) -> None:
    assert membership.describe_expiry(NOW + left, NOW) == said


@pytest.mark.parametrize(
    ("left", "day"),
    [
        (None, ""),
        (timedelta(days=14), ""),
        (timedelta(days=14, seconds=-1), "2026-12-07"),
        (timedelta(hours=1), "2026-11-23"),
        (timedelta(days=-3), "2026-11-20"),  # it has ended, and no error has shown it yet
    ],
)
def test_a_token_that_ends_soon_gets_a_notice_with_the_day(left: timedelta | None, day: str) -> None:
    said = membership.expiry_notice("east", None if left is None else NOW + left, NOW)
    assert said == (
        (f"Its token expires on {day}: renew it with `kubectl rayspan rotate east --worker-context CONTEXT`.")
        if day
        else ""
    )


def test_a_notice_is_the_same_all_day() -> None:
    ends = NOW + timedelta(days=9)
    assert len({membership.expiry_notice("east", ends, NOW + timedelta(minutes=30 * step)) for step in range(400)}) == 1


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (cluster(kubeConfig={"secretRef": {"name": "hers"}}), "hers"),
        (cluster(multiKueueClusterRef={"name": "east"}), ""),
        (cluster(clusterProfileRef={"name": "east"}), ""),
        (cluster(kubeConfig={"secretRef": ["east"]}), ""),
        ({"spec": "east"}, ""),
        ({}, ""),
    ],
)
def test_which_secret_of_ours_a_worker_cluster_names(raw: Raw, named: str) -> None:
    assert membership.kubeconfig_secret_name(raw) == named


def test_which_policies_name_the_cluster() -> None:
    policies = [
        {"metadata": {"name": "b"}, "spec": {"clusters": {"names": ["west", "east"]}}},
        {"metadata": {"name": "a"}, "spec": {"clusters": {"names": ["east"]}}},
        {"metadata": {"name": "c"}, "spec": {"clusters": {"selector": {}}}},
    ]
    assert membership.policies_naming(policies, "east") == ["a", "b"]
