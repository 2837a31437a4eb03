"""A ClusterProfile gives a cluster's address, an admin names the token; what is unsafe or missing is one sentence."""

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
    """The configuration of the program `secretreader` in a profile."""
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
        pytest.param(EAST, of(("secretreader", CLUSTER)), id="the provider secretreader"),
        pytest.param(
            EAST, of(("secretreader", asking("east"))), id="secretreader asks for the Secret of the profile's name",
        ),
        pytest.param(
            EAST, of(("secretreader", CLUSTER), field="credentialProviders"), id="the older field credentialProviders",
        ),
        pytest.param(
            EAST, of(("gcp", {"server": "https://other"}), ("secretreader", CLUSTER)),
            id="secretreader beside another provider",
        ),
        pytest.param(
            EAST,
            {"status": of(("secretreader", {"server": "https://old"}), field="credentialProviders")["status"]
             | of(("secretreader", CLUSTER))["status"]},
            id="the newer field counts where both name the provider",
        ),
        pytest.param(NAMED, of(("gcp", CLUSTER)), id="any provider, with a Secret that the admin named"),
        pytest.param(NAMED, of(("gcp", CLUSTER), ("oidc", CLUSTER)), id="several providers with one address"),
        pytest.param(NAMED, of(("secretreader", asking("west"))), id="the admin's Secret counts, not the profile's"),
        pytest.param(
            EAST, of(("secretreader", {**CLUSTER, "disable-compression": True})),
            id="a field that is not needed is left out",
        ),
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
        pytest.param(
            None, " names ClusterProfile fleet/east, which does not exist; create it, " + INSTEAD, id="missing",
        ),
        pytest.param(
            {},
            ": ClusterProfile fleet/east has no access provider in its status, so the address of its cluster is "
            "unknown; find out why its cluster manager writes none, " + INSTEAD,
            id="no status yet",
        ),
        pytest.param(
            of(("oidc", CLUSTER), ("gcp", CLUSTER)),
            ": ClusterProfile fleet/east has the access providers gcp, oidc and none called secretreader, and Rayspan "
            "runs no program for a login; put a token into a Secret of rayspan-system, and name that in "
            "spec.source.clusterProfileRef.tokenSecretRef, " + INSTEAD,
            id="providers that need a program",
        ),
        pytest.param(
            of(("secretreader", asking("west"))),
            ": ClusterProfile fleet/east asks for the token in Secret west, and a profile may not choose the Secret "
            "of another cluster; if that is right, name it in spec.source.clusterProfileRef.tokenSecretRef.",
            id="another cluster's token",
        ),
        pytest.param(
            of(("secretreader", {"server": "http://east.example.com"})),
            ": ClusterProfile fleet/east gives no usable cluster address: its server is not an https URL; correct it "
            "in the cluster manager that writes status.accessProviders.",
            id="a plain http address",
        ),
        pytest.param(
            of(("secretreader", {**CLUSTER, "insecure-skip-tls-verify": True})),
            ": ClusterProfile fleet/east gives no usable cluster address: it sets insecure-skip-tls-verify, and a "
            "token is sent only to a server whose certificate is verified; correct it in the cluster manager that "
            "writes status.accessProviders.",
            id="a certificate that is not verified",
        ),
        pytest.param(
            of(("secretreader", {"server": SERVER, "certificate-authority": "/var/run/secrets/ca.crt"})),
            ": ClusterProfile fleet/east gives no usable cluster address: its certificate-authority is a file; put "
            "the data itself there; correct it in the cluster manager that writes status.accessProviders.",
            id="a certificate authority in a file",
        ),
        pytest.param(
            {"status": "x"}, ": ClusterProfile fleet/east cannot be read (AttributeError).", id="an odd status",
        ),
        pytest.param(
            of(("secretreader", "x")), ": ClusterProfile fleet/east cannot be read (AttributeError).",
            id="an odd cluster",
        ),
        pytest.param(
            {"status": {"accessProviders": [{}]}}, ": ClusterProfile fleet/east cannot be read (KeyError).",
            id="a provider without a name",
        ),
    ],
)  # fmt: skip
def test_an_unusable_profile_is_one_sentence(found: Raw | None, sentence: str) -> None:
    assert refused(found) == "spec.source.clusterProfileRef" + sentence


def test_several_addresses_are_an_error() -> None:
    said = refused(of(("gcp", CLUSTER), ("oidc", {"server": "https://other"})), NAMED)
    assert "has the access providers gcp, oidc, which lead to several addresses, and none called secretreader" in said


def test_a_long_list_of_providers_is_cut() -> None:
    said = refused(of(*((f"p{number}" * 99, CLUSTER) for number in range(200))))
    assert len(said) < 1000 and ", ... and none called" in said


# --- the token --------------------------------------------------------------------------------------------------------


def secret(text: bytes) -> Raw:
    return {"data": {"token": base64.b64encode(text).decode()}}


@pytest.mark.parametrize(
    "text",
    [b"abc.def-ghi", b"abc.def-ghi\n"],
    ids=["the token alone", "the token with a newline"],
)
def test_a_token_is_read(text: bytes) -> None:
    assert clusterprofile.token_of_secret(EAST, "rayspan-system", secret(text)) == TOKEN


@pytest.mark.parametrize(
    ("profile", "found", "sentence"),
    [
        pytest.param(
            EAST,
            None,
            "Secret east in rayspan-system, which must hold the token for ClusterProfile fleet/east, does not exist; "
            "create it with the token in its key token.",
            id="missing",
        ),
        pytest.param(
            NAMED,
            {"data": {"kubeconfig": "eA=="}},
            "Secret login in rayspan-system has no key token; add it, with the token for ClusterProfile fleet/east.",
            id="another key",
        ),
        pytest.param(
            EAST, {"data": "x"},
            "Secret east in rayspan-system has no key token; add it, with the token for ClusterProfile fleet/east.",
            id="odd data",
        ),
        pytest.param(
            EAST, {"data": {"token": "no base64"}},
            "Secret east in rayspan-system: its key token holds no valid token; create a new one.", id="no base64",
        ),
        *(
            pytest.param(
                EAST, secret(text), "Secret east in rayspan-system: its key token holds no valid token; create a new "
                                    "one.", id=why,
            )
            for text, why in (
                (b" \n", "nothing"), (b"a\nb", "two lines"), (b"a b", "two words"), ("ä".encode(), "no ASCII"),
                (b"\xff", "no text"),
            )
        ),
    ],
)  # fmt: skip
def test_a_secret_without_a_token_is_named_and_not_quoted(
    profile: ProfileReference, found: Raw | None, sentence: str
) -> None:
    with pytest.raises(specs.InvalidSpec) as error:
        clusterprofile.token_of_secret(profile, "rayspan-system", found)
    assert str(error.value) == sentence


def test_address_and_token_make_a_kubeconfig() -> None:
    made = json.loads(clusterprofile.build_kubeconfig(CLUSTER, TOKEN))
    assert made["clusters"][0]["cluster"] == CLUSTER and made["users"][0]["user"] == {"token": TOKEN}
    assert made["current-context"] == made["contexts"][0]["name"]


# --- changes that matter ----------------------------------------------------------------------------------------------


def test_health_and_properties_change_nothing() -> None:
    found = of(("secretreader", CLUSTER))
    busy = {"status": {**found["status"], "conditions": [{}], "properties": [{}], "version": {}}}
    assert clusterprofile.login_facts(found) == clusterprofile.login_facts(busy)
    assert clusterprofile.login_facts(found) != clusterprofile.login_facts(
        of(("secretreader", {"server": "https://other"}))
    )
    assert clusterprofile.login_facts({}) != clusterprofile.login_facts({"status": "odd"})


def test_a_manager_without_clusterprofiles_says_so() -> None:
    assert str(clusterprofile.unreadable_error(EAST, "404 NotFound: ")) == (
        "spec.source.clusterProfileRef cannot be resolved: the controller cannot read ClusterProfile fleet/east (404 "
        "NotFound: ); install the CRD of the cluster inventory API, and apply kustomize/overlays/manager, " + INSTEAD
    )
