"""A ClusterProfile says where a cluster is, and an admin whose token goes there; what is not safe, or not there, is told in a sentence."""

import base64
import json

import pytest

from adapter.admission import clusterprofile
from adapter.admission.clusterprofile import ProfileReference
from adapter.objects import specs
from adapter.objects.unstructured import Raw

EAST = ProfileReference("east", "fleet")
NAMED = ProfileReference("east", "fleet", secret="login")
SERVER = "https://east.example.com:6443"
CLUSTER = {"server": SERVER, "certificate-authority-data": "Q0E="}
INSTEAD = "or put a kubeconfig into a Secret, and name that in spec.source.kubeConfig."
TOKEN = "abc.def-ghi"


def asking(secret: object) -> Raw:
    """What the program `secretreader` is told by a profile."""
    return {
        **CLUSTER,
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": secret}}],
    }


def of(*providers: tuple[str, object], field: str = "accessProviders") -> Raw:
    return {"status": {field: [{"name": name, "cluster": cluster} for name, cluster in providers]}}


def refused(found: Raw | None, profile: ProfileReference = EAST) -> str:
    with pytest.raises(specs.InvalidSpec) as error:
        clusterprofile.cluster_address(profile, found)
    return str(error.value)


@pytest.mark.parametrize(
    ("profile", "found"),
    [
        pytest.param(EAST, of(("secretreader", CLUSTER)), id="the provider whose part we do"),
        pytest.param(EAST, of(("secretreader", asking("east"))), id="which asks for the Secret of the profile's name"),
        pytest.param(EAST, of(("secretreader", CLUSTER), field="credentialProviders"), id="by the field's older name"),
        pytest.param(EAST, of(("gcp", {"server": "https://other"}), ("secretreader", CLUSTER)), id="beside another one"),
        pytest.param(
            EAST,
            {"status": of(("secretreader", {"server": "https://old"}), field="credentialProviders")["status"]
             | of(("secretreader", CLUSTER))["status"]},
            id="of one name, the newer field counts",
        ),
        pytest.param(NAMED, of(("gcp", CLUSTER)), id="any other one, where an admin names the Secret"),
        pytest.param(NAMED, of(("gcp", CLUSTER), ("oidc", CLUSTER)), id="several that say the same"),
        pytest.param(NAMED, of(("secretreader", asking("west"))), id="another Secret, which an admin decides"),
        pytest.param(EAST, of(("secretreader", {**CLUSTER, "disable-compression": True})), id="what is not needed is left out"),
    ],
)  # fmt: skip
def test_the_address_is_read(profile: ProfileReference, found: Raw) -> None:
    assert clusterprofile.cluster_address(profile, found) == CLUSTER


def test_a_proxy_and_the_name_on_the_certificate_are_taken_along() -> None:
    more = {"proxy-url": "http://proxy:3128", "tls-server-name": "kubernetes"}
    assert clusterprofile.cluster_address(EAST, of(("secretreader", {**CLUSTER, **more}))) == {**CLUSTER, **more}


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param(None, " names ClusterProfile fleet/east, which does not exist; create it, " + INSTEAD, id="missing"),
        pytest.param(
            {},
            ": ClusterProfile fleet/east has no access provider in its status, so nobody says where its cluster is; see why its cluster "
            "manager writes none, " + INSTEAD,
            id="no status yet",
        ),
        pytest.param(
            of(("oidc", CLUSTER), ("gcp", CLUSTER)),
            ": ClusterProfile fleet/east has the access providers gcp, oidc and none called secretreader, and Rayspan runs no program for a "
            "login; put a token into a Secret of rayspan-system, and name that in spec.source.clusterProfileRef.tokenSecretRef, " + INSTEAD,
            id="programs that we do not run",
        ),
        pytest.param(
            of(("secretreader", asking("west"))),
            ": ClusterProfile fleet/east asks for the token in Secret west, and a profile does not choose another cluster's Secret; if that is "
            "right, name it in spec.source.clusterProfileRef.tokenSecretRef.",
            id="another cluster's token",
        ),
        pytest.param(
            of(("secretreader", {"server": "http://east.example.com"})),
            ": ClusterProfile fleet/east leads to no cluster: its server is no https URL; whoever writes its status.accessProviders is to "
            "mend that.",
            id="a token that all can read",
        ),
        pytest.param(
            of(("secretreader", {**CLUSTER, "insecure-skip-tls-verify": True})),
            ": ClusterProfile fleet/east leads to no cluster: it asks for insecure-skip-tls-verify, and a token is sent to nobody whose "
            "certificate is not verified; whoever writes its status.accessProviders is to mend that.",
            id="anybody's certificate",
        ),
        pytest.param(
            of(("secretreader", {"server": SERVER, "certificate-authority": "/var/run/secrets/ca.crt"})),
            ": ClusterProfile fleet/east leads to no cluster: its certificate-authority is a file; put the data itself there; whoever writes "
            "its status.accessProviders is to mend that.",
            id="a file of ours",
        ),
        pytest.param({"status": "x"}, ": ClusterProfile fleet/east cannot be read (AttributeError).", id="an odd status"),
        pytest.param(of(("secretreader", "x")), ": ClusterProfile fleet/east cannot be read (AttributeError).", id="an odd cluster"),
        pytest.param({"status": {"accessProviders": [{}]}}, ": ClusterProfile fleet/east cannot be read (KeyError).", id="no name"),
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_told_in_a_sentence(found: Raw | None, sentence: str) -> None:
    assert refused(found) == "spec.source.clusterProfileRef" + sentence


def test_several_addresses_are_no_address() -> None:
    said = refused(of(("gcp", CLUSTER), ("oidc", {"server": "https://other"})), NAMED)
    assert "has the access providers gcp, oidc, which lead to several addresses, and none called secretreader" in said


def test_a_long_list_of_providers_is_not_told_whole() -> None:
    said = refused(of(*((f"p{number}" * 99, CLUSTER) for number in range(200))))
    assert len(said) < 1000 and ", ... and none called" in said


# --- the token ----------------------------------------------------------------------------------------------------------


def secret(text: bytes) -> Raw:
    return {"data": {"token": base64.b64encode(text).decode()}}


@pytest.mark.parametrize("text", [b"abc.def-ghi", b"abc.def-ghi\n"], ids=["as it is", "of a file"])
def test_a_token_is_read(text: bytes) -> None:
    assert clusterprofile.token_of_secret(EAST, "rayspan-system", secret(text)) == TOKEN


@pytest.mark.parametrize(
    ("profile", "found", "sentence"),
    [
        pytest.param(
            EAST,
            None,
            "Secret east in rayspan-system, which is to hold the token for ClusterProfile fleet/east, does not exist; create it with the token "
            "in its key token.",
            id="missing",
        ),
        pytest.param(
            NAMED,
            {"data": {"kubeconfig": "eA=="}},
            "Secret login in rayspan-system has no key token; add it, with the token for ClusterProfile fleet/east.",
            id="another key",
        ),
        pytest.param(EAST, {"data": "x"}, "Secret east in rayspan-system has no key token; add it, with the token for ClusterProfile fleet/east.", id="odd data"),
        pytest.param(EAST, {"data": {"token": "no base64"}}, "Secret east in rayspan-system: its key token is no token; make it anew.", id="no base64"),
        *(
            pytest.param(EAST, secret(text), "Secret east in rayspan-system: its key token is no token; make it anew.", id=why)
            for text, why in ((b" \n", "nothing"), (b"a\nb", "two lines"), (b"a b", "two words"), ("ä".encode(), "no ASCII"), (b"\xff", "no text"))
        ),
    ],
)  # fmt: skip
def test_a_secret_without_a_token_is_told_and_not_quoted(
    profile: ProfileReference, found: Raw | None, sentence: str
) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        clusterprofile.token_of_secret(profile, "rayspan-system", found)
    assert str(error.value) == sentence


def test_both_make_a_kubeconfig() -> None:
    made = json.loads(clusterprofile.build_kubeconfig(CLUSTER, TOKEN))
    assert made["clusters"][0]["cluster"] == CLUSTER and made["users"][0]["user"] == {"token": TOKEN}
    assert made["current-context"] == made["contexts"][0]["name"]


# --- what is news ---------------------------------------------------------------------------------------------------------


def test_health_and_properties_are_no_news() -> None:
    found = of(("secretreader", CLUSTER))
    busy = {"status": {**found["status"], "conditions": [{}], "properties": [{}], "version": {}}}
    assert clusterprofile.login_facts(found) == clusterprofile.login_facts(busy)
    assert clusterprofile.login_facts(found) != clusterprofile.login_facts(
        of(("secretreader", {"server": "https://other"}))
    )
    assert clusterprofile.login_facts({}) != clusterprofile.login_facts({"status": "odd"})


def test_a_manager_without_clusterprofiles_says_so() -> None:
    assert str(clusterprofile.unreadable_error(EAST, "404 NotFound: ")) == (
        "spec.source.clusterProfileRef cannot be followed: the manager cluster does not show ClusterProfile fleet/east (404 NotFound: ); install the "
        "CRD of the cluster inventory API, and apply kustomize/overlays/manager, " + INSTEAD
    )
