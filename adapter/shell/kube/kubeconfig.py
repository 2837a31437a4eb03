"""What may a kubeconfig ask of us, and who are we by it: one that comes from another cluster's admin, or the user's own?

The official client reads it and makes the TLS context. What is refused or cannot be read is a BadLogin, which quotes nothing of
it. Nothing is sent here.
"""

from typing import Any

import yaml
from kubernetes.aio import client as kube
from kubernetes.aio import config as kube_config

Body = dict[str, Any]
# What a kubeconfig from elsewhere may not ask of us: to run a program or to read a file of ours. MultiKueue refuses the
# same (docs/upstream.md, "What MultiKueue refuses in a kubeconfig").
FORBIDDEN_USER = ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key")
FORBIDDEN_CLUSTER = ("certificate-authority",)


class BadLogin(ValueError):
    """What was given as a kubeconfig cannot be used; the text says why, and quotes nothing of it."""


async def login(text: str) -> kube.ApiClient:
    """The official client by the text of a kubeconfig from elsewhere; raises BadLogin."""
    try:
        return await _without_files(_harmless(text))
    except BadLogin:
        raise
    except kube_config.ConfigException as error:
        raise BadLogin(str(error)) from None
    except Exception as error:  # the loader's own slips on odd input are many: a bad Secret must not end a loop
        raise BadLogin(f"it cannot be loaded ({type(error).__name__})") from None


async def login_of_user(file: str, context: str) -> kube.ApiClient:
    """The official client by a kubeconfig file and a context (empty: kubectl's own choice); raises BadLogin.

    It is the user's own file, so whatever it asks for is done: programs are run, files are read.
    """
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config(file or None, context or None, client_configuration=settings)
        return kube.ApiClient(settings)
    except kube_config.ConfigException as error:
        raise BadLogin(str(error)) from None
    except Exception as error:  # as above
        raise BadLogin(f"the kubeconfig cannot be loaded ({type(error).__name__})") from None


def default_namespace(file: str, context: str) -> str:
    """The namespace of a context in the user's kubeconfig (empty: kubectl's own choice), `default` when it names none."""
    try:
        contexts, active = kube_config.list_kube_config_contexts(file or None)
    except Exception:  # whoever logs in with it next says what is wrong
        return "default"
    chosen = next((one for one in contexts if one.get("name") == context), {}) if context else active
    return str((chosen.get("context") or {}).get("namespace") or "default")


async def _without_files(content: Body) -> kube.ApiClient:
    """The official client of a kubeconfig. The library would keep files of its certificates and keys until the process ends,
    those of every renewal; once they are in the TLS context, nobody needs them.
    """
    settings = kube.Configuration()
    try:
        await kube_config.load_kube_config_from_dict(content, client_configuration=settings)
        return kube.ApiClient(settings)
    finally:  # nothing waits between writing and reading them, so none of another cluster's is missing yet
        kube_config.kube_config._cleanup_temp_files()


def _harmless(text: str) -> Body:
    """Read a kubeconfig, and refuse one that would act in our process; it comes from another cluster's admin."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        raise BadLogin("it is not YAML") from None
    if not isinstance(content, dict):
        raise BadLogin("it is not a YAML mapping")
    for entry in content.get("clusters") or ():
        if not isinstance((entry.get("cluster") or {}).get("proxy-url") or "", str):
            raise BadLogin("clusters[].cluster.proxy-url is no URL")
    for listed, part, forbidden in (("users", "user", FORBIDDEN_USER), ("clusters", "cluster", FORBIDDEN_CLUSTER)):
        for entry in content.get(listed) or ():
            found = [key for key in forbidden if key in (entry.get(part) or {})]
            if found:
                raise BadLogin(f"{listed}[].{part}.{found[0]} is not allowed; put the data itself into the kubeconfig")
    return content
