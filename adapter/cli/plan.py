"""`rayspan plan`: what would happen to a job if it were submitted now? Prints the controller's answer; submits nothing.

The controller answers, because it sees the worker clusters and the user need not: the question goes through the
manager's API server with the user's own kubeconfig. Exit code 0: it fits; 3: it does not; 2: there is no job to plan;
1: nobody could be asked.
"""

import argparse
import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from adapter import names
from adapter.cli import common, plan_table
from adapter.cli.common import TROUBLE, USAGE, complain
from adapter.cli.plan_table import Answer
from adapter.objects import rayservice
from adapter.objects.rayjob import MOST_ASKED_BYTES, Unusable
from adapter.objects.unstructured import UNREADABLE
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.user_kubeconfig import default_namespace

FITS, DOES_NOT_FIT = 0, 3


def main(given: argparse.Namespace) -> int:
    """Ask, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        job = _job(_text(given.filename))
        answer = asyncio.run(_ask(given, job))
    except Unusable as error:
        return complain(str(error), USAGE)
    except (BadLogin, Unreachable) as error:
        return complain(f"The manager cluster cannot be asked: {error}", TROUBLE)
    except ApiError as error:
        return complain(explained(error), USAGE if error.reason == names.UNUSABLE_REASON else TROUBLE)
    try:
        print(_printed(answer, given.output), end="")
    except (KeyError, TypeError):  # an answer of another version's
        return complain("The controller's answer cannot be shown: it is of another version; try -o json.", TROUBLE)
    return FITS if answer.get("fits") else DOES_NOT_FIT


def _text(filename: str) -> str:
    text = common.read_text(filename)
    if len(text.encode()) > MOST_ASKED_BYTES:
        raise Unusable(f"{filename} is larger than {MOST_ASKED_BYTES // 2**20} MiB; leave out what is not the job.")
    return text


_PLANNED = (*names.RAY_KINDS, names.RAY_SERVICE)


def _job(text: str) -> dict[str, Any]:
    """The one RayJob, RayCluster or RayService of the file, the last as the RayCluster that KubeRay would make of it; other objects in
    it may stand beside it."""
    objects = common.read_objects(text)
    jobs = [found for found in objects if found.get("kind") in _PLANNED]
    if len(jobs) != 1:
        kinds = ", ".join(str(found.get("kind")) for found in objects) or "nothing"
        wanted = f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}"
        raise Unusable(f"The file must hold one {wanted}, found {len(jobs)} of them in: {kinds}.")
    return _of_service(jobs[0]) if jobs[0].get("kind") == names.RAY_SERVICE else jobs[0]


def _of_service(service: dict[str, Any]) -> dict[str, Any]:
    from adapter.admission import job_validation  # it brings pydantic

    try:
        why = job_validation.of_service(service)
    except UNREADABLE:
        raise Unusable(
            "The RayService cannot be read; `kubectl apply --dry-run=server` says what is wrong with it."
        ) from None
    if why:
        raise Unusable(f"The RayService has no plan: {why}.")
    return rayservice.ray_cluster(service)


async def _ask(given: argparse.Namespace, job: dict[str, Any]) -> Answer:
    namespace = _namespace(given, job)
    try:
        body = json.loads(
            json.dumps({"namespace": namespace, "object": job}, default=str)
        )  # YAML knows dates, JSON does not
    except (TypeError, ValueError):
        raise Unusable("The file holds keys or values that JSON cannot say; a Kubernetes object has none.") from None
    client = await Client.of_user(given.kubeconfig, given.context)
    try:
        return await common.told(answered(client, body), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def answered(client: Client, question: Mapping[str, Any]) -> Answer:
    """The controller's plan for a question: `namespace` and `object`."""
    return await client.create(resources.to_controller(names.PLAN_PATH), question)


def _namespace(given: argparse.Namespace, job: dict[str, Any]) -> str:
    """As kubectl has it: the option and the file must not contradict each other."""
    meta = job.get("metadata")
    written = str(meta.get("namespace") or "") if isinstance(meta, dict) else ""
    if given.namespace and written and given.namespace != written:
        raise Unusable(
            f"The file's namespace {written} is not {given.namespace}; leave out --namespace, or name the same."
        )
    return written or given.namespace or default_namespace(given.kubeconfig, given.context)


def explained(error: ApiError) -> str:
    """Why the controller made no plan, as a sentence."""
    service = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        binding = f"create rolebinding {names.PLAN_ROLE} --role={names.PLAN_ROLE} {common.whom(error)}"
        command = f"kubectl -n {names.SYSTEM_NAMESPACE} {binding}"
        return f"You may not ask for plans here; an administrator of the manager cluster allows it by `{command}`."
    if error.status == 404:
        return f"There is no {service}: Rayspan is not installed in this cluster, or too old to make plans."
    if error.status == 503 and error.reason != names.NOT_READY_REASON:
        return f"{service} has no ready controller behind it; see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`."
    return error.message or str(error)


def _printed(answer: Answer, output: str) -> str:
    return plan_table.render(answer) if output == "table" else common.written(answer, output)
