"""`rayspan version` with a cluster or an output format: print the versions of the controller and of this program.

It requests the version as `plan` requests a plan. If the request fails, it prints the image of the controller's
Deployment.
"""

import argparse
import logging
from dataclasses import dataclass

from adapter import __version__, names
from adapter.cli import common, event_loop, plan
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.cli.terminal import print_text
from adapter.objects.unstructured import MAX_ITEM_LENGTH, UNREADABLE, printable
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin


@dataclass(frozen=True, slots=True)
class ControllerVersion:
    """A controller's version, or its image; both fields are empty if nothing was requested or the request failed."""

    version: str = ""
    image: str = ""


def main(args: argparse.Namespace) -> int:
    """Request the version, print it, and return the exit code."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # our own message reports what it warns of
    controller, problem = ControllerVersion(), ""
    try:
        if args.context or args.kubeconfig:
            controller = event_loop.run_command(_read_version(args))
    except (BadLogin, Unreachable) as error:
        problem = f"The manager cluster cannot be reached: {error}"
    except ApiError as error:
        problem = f"The controller's version cannot be read. {_error_message(error)}"
    print_text(_format_versions(controller, problem, args.output))
    return print_error(problem, EXIT_ERROR) if problem else EXIT_OK


def _format_versions(controller: ControllerVersion, problem: str, output: str) -> str:
    if output == "table":
        text = controller.version or f"image {controller.image}"
        return "" if problem else f"Controller: {text}\n"
    document = {"controllerVersion": controller.version or None, "controllerImage": controller.image or None}
    return common.format_document({"clientVersion": __version__, **document}, output)


async def _read_version(args: argparse.Namespace) -> ControllerVersion:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await common.await_with_hint(_version_or_image(client), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def _version_or_image(client: Client) -> ControllerVersion:
    """The controller's version, else its image; raise the error of the version request if neither is known."""
    try:
        answer = await client.create(resources.controller_proxy_path(names.VERSION_PATH), {})
        if not isinstance(answer.get("version"), str):
            raise ApiError(200, "Odd", "The controller's answer holds no version.")
        return ControllerVersion(version=printable(answer["version"]))
    except (ApiError, Unreachable) as error:
        image = "" if isinstance(error, ApiError) and error.status == 401 else await _deployment_image(client)
        if not image:
            raise
        return ControllerVersion(image=image)


async def _deployment_image(client: Client) -> str:
    """The controller's image in its Deployment; empty when not readable."""
    try:
        deployment = await client.get(resources.DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
        return printable(deployment["spec"]["template"]["spec"]["containers"][0]["image"], MAX_ITEM_LENGTH)
    except (ApiError, *UNREADABLE, IndexError):
        return ""


def _error_message(error: ApiError) -> str:
    if not error.not_found:
        return plan.error_message(error)
    service = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    return (
        f"No controller answers behind {service}: Rayspan is not installed in this cluster, or is "
        "too old to report its version."
    )
