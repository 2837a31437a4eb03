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
from adapter.cli.common import DONE, TROUBLE, complain
from adapter.objects.unstructured import LONGEST_OF_ONE, UNREADABLE, quoted
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin


@dataclass(frozen=True, slots=True)
class Controller:
    """What is known of a controller; both empty: nothing was asked, or nobody told."""

    version: str = ""
    image: str = ""


def main(given: argparse.Namespace) -> int:
    """Ask, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    found, problem = Controller(), ""
    try:
        if given.context or given.kubeconfig:
            found = asyncio.run(_asked(given))
    except (BadLogin, Unreachable) as error:
        problem = f"The manager cluster cannot be asked: {error}"
    except ApiError as error:
        problem = f"The controller's version cannot be read. {_explained(error)}"
    print(_printed(found, problem, given.output), end="")
    return complain(problem, TROUBLE) if problem else DONE


def _printed(found: Controller, problem: str, output: str) -> str:
    if output == "table":
        told = found.version or f"image {found.image}"
        return "" if problem else f"Controller: {told}\n"
    document = {"controllerVersion": found.version or None, "controllerImage": found.image or None}
    return common.written({"clientVersion": __version__, **document}, output)


async def _asked(given: argparse.Namespace) -> Controller:
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        return await common.told(_version(client), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def _version(client: Client) -> Controller:
    """The controller's own word, else its image; raises what the controller's API server said when there is neither."""
    try:
        answer = await client.create(resources.to_controller(names.VERSION_PATH), {})
        if not isinstance(answer.get("version"), str):
            raise ApiError(200, "Odd", "The controller's answer holds no version.")
        return Controller(version=quoted(answer["version"]))
    except (ApiError, Unreachable) as error:
        image = "" if isinstance(error, ApiError) and error.status == 401 else await _image(client)
        if not image:
            raise
        return Controller(image=image)


async def _image(client: Client) -> str:
    """What the Deployment runs, empty where that is not to be read."""
    try:
        found = await client.get(resources.DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
        return quoted(found["spec"]["template"]["spec"]["containers"][0]["image"], LONGEST_OF_ONE)
    except (ApiError, *UNREADABLE, IndexError):
        return ""


def _explained(error: ApiError) -> str:
    if not error.missing:
        return plan.explained(error)
    where = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    return f"Nobody answers behind {where}: Rayspan is not installed in this cluster, or is too old to tell."
