"""`rayspan version --context …`: which version is the controller in the manager cluster?

It is asked as for a plan, with the user's own rights. Whoever may not, or meets a controller that is too old to tell or does not
answer, is shown the image in its Deployment, if that may be read. Exit code 0: it is shown; 1: it cannot be read.
"""

import argparse
import asyncio
import logging

from adapter import names
from adapter.cli import common, plan
from adapter.cli.common import DONE, TROUBLE, complain
from adapter.objects.raw import LONGEST_OF_ONE, UNREADABLE, quoted
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.kubeconfig import BadLogin
from adapter.shell.kube.resources import DEPLOYMENTS


def main(given: argparse.Namespace) -> int:
    """Ask, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        print(f"Controller: {asyncio.run(_asked(given))}")
    except (BadLogin, Unreachable) as error:
        return complain(f"The manager cluster cannot be asked: {error}", TROUBLE)
    except ApiError as error:
        return complain(f"The controller's version cannot be read. {_explained(error)}", TROUBLE)
    return DONE


async def _asked(given: argparse.Namespace) -> str:
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        return await common.told(_version(client), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def _version(client: Client) -> str:
    """The controller's own word, else its image; raises what the controller's API server said when there is neither."""
    try:
        answer = await client.create(plan.path_to(names.VERSION_PATH), {})
        if not isinstance(answer.get("version"), str):
            raise ApiError(200, "Odd", "The controller's answer holds no version.")
        return quoted(answer["version"])
    except (ApiError, Unreachable) as error:
        image = "" if isinstance(error, ApiError) and error.status == 401 else await _image(client)
        if not image:
            raise
        return f"image {image}"


async def _image(client: Client) -> str:
    """What the Deployment runs, empty where that is not to be read."""
    try:
        found = await client.get(DEPLOYMENTS.path(names.SYSTEM_NAMESPACE, names.DEPLOYMENT))
        return quoted(found["spec"]["template"]["spec"]["containers"][0]["image"], LONGEST_OF_ONE)
    except (ApiError, *UNREADABLE, IndexError):
        return ""


def _explained(error: ApiError) -> str:
    if not error.missing:
        return plan.explained(error)
    where = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    return f"Nobody answers behind {where}: Rayspan is not installed in this cluster, or is too old to tell."
