"""The parameters of a worker's `ray start` that name Services of the manager cluster: `address`, `node-ip-address`.

KubeRay writes a worker group's rayStartParams into the command of its pods
(kuberay:controllers/ray/common/pod.go, convertParamMap).
"""

import re
from typing import Final

from adapter.objects.service_names import find_service_names, is_address, is_service_host

ADDRESS_PARAM: Final = "address"  # of the head; without it KubeRay writes the head's Service
NODE_ADDRESS_PARAM: Final = "node-ip-address"  # without it Ray takes the pod's IP
JOIN_PARAMS: Final = (ADDRESS_PARAM, NODE_ADDRESS_PARAM)

# A worker's user writes these texts, so each expression takes time in proportion to the text: repetitions give nothing
# back, words are bounded, and longer texts stay as they are.
MAX_COMMAND_LENGTH: Final = 16 * 1024
# A word of a shell command; `$(…)` and quoted texts may have spaces.
_WORD: Final = r"""(?:\$\([^()]{0,300}\)|"[^"]{0,300}"|'[^']{0,300}'|[^\s;&|"'()]{1,300}+){1,4}+"""
# `ray start` with its parameters, up to the next command.
_RAY_START: Final = "ray start"
_START_COMMAND: Final = re.compile(r"""(?<![\w-])ray start(?![\w-])(?:\$\([^()]*+\)|"[^"]*+"|'[^']*+'|[^;&|\n"'])*+""")
_ADDRESS: Final = re.compile(rf"(?<=--{ADDRESS_PARAM}[= ])(?P<host>[a-z0-9.-]++)(?P<port>:[$\w{{}}]++)(?=$|\s)")
_NODE_ADDRESS: Final = re.compile(rf"\s?--{NODE_ADDRESS_PARAM}[= ](?P<word>{_WORD})(?=$|\s)")
_HOST_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_HOST_AND_PORT: Final = re.compile(r"(?P<host>[a-z0-9.-]+):[$\w{}]+")


def service_of_address(value: str, namespace: str) -> str:
    """The host of an `address` that names a Service, as a worker in `namespace` writes it; empty for any other."""
    match = _HOST_AND_PORT.fullmatch(value)
    return match["host"] if match and is_service_host(match["host"], namespace) else ""


def names_node_by_service(value: str) -> bool:
    """Whether a `node-ip-address` is one shell word that ends with the name of a Service."""
    host = value.rstrip(".")
    return bool(re.fullmatch(_WORD, value)) and any(host.endswith(name.text) for name in find_service_names(host))


def is_host_name(value: str) -> bool:
    """Whether a `node-ip-address` is the name of a host, and no IP or expression."""
    return bool(_HOST_NAME.fullmatch(value)) and not is_address(value)


def replace_service_addresses(command: str, namespace: str, head_service: str, head_address: str) -> str:
    """A command whose `ray start` joins `head_address` in place of another Service, and names its node by its IP.

    Names of `head_service` stay, and so do all Services while `head_address` is empty.
    """
    if len(command) > MAX_COMMAND_LENGTH:
        return command

    def joined(match: re.Match[str]) -> str:
        host = match["host"].removesuffix(".")
        is_head = head_service == host or head_service.startswith(f"{host}.")
        replaced = head_address and not is_head and is_service_host(host, namespace)
        return head_address if replaced else match[0]

    def replaced_start(start: re.Match[str]) -> str:
        return _ADDRESS.sub(joined, _NODE_ADDRESS.sub(_without_service, start[0]))

    return _START_COMMAND.sub(replaced_start, command)


def set_node_address(command: str, address: str) -> str:
    """A command whose `ray start` gives the node this address, or name, instead of any other."""
    if len(command) > MAX_COMMAND_LENGTH:
        return command

    def replaced_start(start: re.Match[str]) -> str:
        return (
            f"{_RAY_START} --{NODE_ADDRESS_PARAM}={address}{_NODE_ADDRESS.sub('', start[0]).removeprefix(_RAY_START)}"
        )

    return _START_COMMAND.sub(replaced_start, command)


def _without_service(parameter: re.Match[str]) -> str:
    return "" if names_node_by_service(parameter["word"]) else parameter[0]
