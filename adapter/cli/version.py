"""`rayspan version`: which version is the controller in the manager cluster, where one is named, and which is this program, for programs?

It is asked as for a plan, with the user's own rights. Whoever may not, or meets a controller that is too old to tell or does not
answer, is shown the image in its Deployment, if that may be read. Exit code 0: it is shown; 1: it cannot be read.
"""

import argparse
import asyncio
import logging
from dataclasses import dataclass

from adapter import __version__, names
from adapter.cli import common, plan
from adapter.cli.common import EXIT_ERROR, EXIT_OK, print_error
from adapter.objects.unstructured import MAX_ITEM_LENGTH, UNREADABLE, printable
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin


@dataclass(frozen=True, slots=True)
class ControllerVersion:
    """What is known of a controller; both empty: nothing was asked, or nobody told."""

    version: str = ""
    image: str = ""


def main(args: argparse.Namespace) -> int:
    """Ask, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    found, problem = ControllerVersion(), ""
    try:
        if args.context or args.kubeconfig:
            found = asyncio.run(_read_version(args))
    except (BadLogin, Unreachable) as error:
        problem = f"The manager cluster cannot be asked: {error}"
    except ApiError as error:
        problem = f"The controller's version cannot be read. {_error_message(error)}"
    print(_format_versions(found, problem, args.output), end="")
    return print_error(problem, EXIT_ERROR) if problem else EXIT_OK


def _format_versions(controller: ControllerVersion, problem: str, output: str) -> str:
    if output == "table":
        told = controller.version or f"image {controller.image}"
        return "" if problem else f"Controller: {told}\n"
    document = {"controllerVersion": controller.version or None, "controllerImage": controller.image or None}
    return common.format_document({"clientVersion": __version__, **document}, output)


async def _read_version(args: argparse.Namespace) -> ControllerVersion:
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await common.await_with_hint(_version_or_image(client), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def _version_or_image(client: Client) -> ControllerVersion:
    """The controller's own word, else its image; raises what the controller's API server said when there is neither."""
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
    """What the Deployment runs, empty where that is not to be read."""
    try:
        found = await client.get(resources.DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
        return printable(found["spec"]["template"]["spec"]["containers"][0]["image"], MAX_ITEM_LENGTH)
    except (ApiError, *UNREADABLE, IndexError):
        return ""


def _error_message(error: ApiError) -> str:
    if not error.not_found:
        return plan.error_message(error)
    where = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    return f"Nobody answers behind {where}: Rayspan is not installed in this cluster, or is too old to tell."
