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
from adapter.cli.common import EXIT_ERROR, EXIT_USAGE, print_error
from adapter.cli.plan_table import PlanDocument
from adapter.objects import rayservice
from adapter.objects.rayjob import MAX_JOB_BYTES, InvalidJob
from adapter.objects.unstructured import UNREADABLE
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.credentials import BadLogin
from adapter.shell.kube.user_kubeconfig import default_namespace

EXIT_FITS, EXIT_DOES_NOT_FIT = 0, 3


def main(args: argparse.Namespace) -> int:
    """Ask, print, and return the exit code; trouble is one sentence on the standard error."""
    logging.getLogger("kubernetes").setLevel(logging.CRITICAL)  # what it warns of is said in our own sentence
    try:
        job = _parse_job(_read_job_text(args.filename))
        answer = asyncio.run(_plan_job(args, job))
    except InvalidJob as error:
        return print_error(str(error), EXIT_USAGE)
    except (BadLogin, Unreachable) as error:
        return print_error(f"The manager cluster cannot be asked: {error}", EXIT_ERROR)
    except ApiError as error:
        return print_error(error_message(error), EXIT_USAGE if error.reason == names.INVALID_JOB_REASON else EXIT_ERROR)
    try:
        print(_format_answer(answer, args.output), end="")
    except (KeyError, TypeError):  # an answer of another version's
        return print_error(
            "The controller's answer cannot be shown: it is of another version; try -o json.", EXIT_ERROR
        )
    return EXIT_FITS if answer.get("fits") else EXIT_DOES_NOT_FIT


def _read_job_text(filename: str) -> str:
    text = common.read_text(filename)
    if len(text.encode()) > MAX_JOB_BYTES:
        raise InvalidJob(f"{filename} is larger than {MAX_JOB_BYTES // 2**20} MiB; leave out what is not the job.")
    return text


_PLANNABLE_KINDS = (*names.RAY_KINDS, names.RAY_SERVICE)


def _parse_job(text: str) -> dict[str, Any]:
    """The one RayJob, RayCluster or RayService of the file, the last as the RayCluster that KubeRay would make of it; other objects in
    it may stand beside it."""
    objects = common.read_objects(text)
    jobs = [found for found in objects if found.get("kind") in _PLANNABLE_KINDS]
    if len(jobs) != 1:
        kinds = ", ".join(str(found.get("kind")) for found in objects) or "nothing"
        wanted = f"{', '.join(names.RAY_KINDS)} or {names.RAY_SERVICE}"
        raise InvalidJob(f"The file must hold one {wanted}, found {len(jobs)} of them in: {kinds}.")
    return _ray_cluster_of_service(jobs[0]) if jobs[0].get("kind") == names.RAY_SERVICE else jobs[0]


def _ray_cluster_of_service(service: dict[str, Any]) -> dict[str, Any]:
    from adapter.admission import job_validation  # it brings pydantic

    try:
        why = job_validation.service_problem(service)
    except UNREADABLE:
        raise InvalidJob(
            "The RayService cannot be read; `kubectl apply --dry-run=server` says what is wrong with it."
        ) from None
    if why:
        raise InvalidJob(f"The RayService has no plan: {why}.")
    return rayservice.ray_cluster(service)


async def _plan_job(args: argparse.Namespace, job: dict[str, Any]) -> PlanDocument:
    namespace = _job_namespace(args, job)
    try:
        body = json.loads(
            json.dumps({"namespace": namespace, "object": job}, default=str)
        )  # YAML knows dates, JSON does not
    except (TypeError, ValueError):
        raise InvalidJob("The file holds keys or values that JSON cannot say; a Kubernetes object has none.") from None
    client = await Client.for_user(args.kubeconfig, args.context)
    try:
        return await common.await_with_hint(request_plan(client, body), "Waiting for the controller's answer ...")
    finally:
        await client.close()


async def request_plan(client: Client, body: Mapping[str, Any]) -> PlanDocument:
    """The controller's plan for a question: `namespace` and `object`."""
    return await client.create(resources.controller_proxy_path(names.PLAN_PATH), body)


def _job_namespace(args: argparse.Namespace, job: dict[str, Any]) -> str:
    """As kubectl has it: the option and the file must not contradict each other."""
    meta = job.get("metadata")
    written = str(meta.get("namespace") or "") if isinstance(meta, dict) else ""
    if args.namespace and written and args.namespace != written:
        raise InvalidJob(
            f"The file's namespace {written} is not {args.namespace}; leave out --namespace, or name the same."
        )
    return written or args.namespace or default_namespace(args.kubeconfig, args.context)


def error_message(error: ApiError) -> str:
    """Why the controller made no plan, as a sentence."""
    service = f"Service {names.SERVICE} in namespace {names.SYSTEM_NAMESPACE}"
    if error.status == 401:
        return common.UNKNOWN_USER
    if error.status == 403:
        binding = f"create rolebinding {names.PLAN_ROLE} --role={names.PLAN_ROLE} {common.rolebinding_subject(error)}"
        command = f"kubectl -n {names.SYSTEM_NAMESPACE} {binding}"
        return f"You may not ask for plans here; an administrator of the manager cluster allows it by `{command}`."
    if error.status == 404:
        return f"There is no {service}: Rayspan is not installed in this cluster, or too old to make plans."
    if error.status == 503 and error.reason != names.NOT_READY_REASON:
        return f"{service} has no ready controller behind it; see `kubectl -n {names.SYSTEM_NAMESPACE} get pods`."
    return error.message or str(error)


def _format_answer(answer: PlanDocument, output: str) -> str:
    return plan_table.render(answer) if output == "table" else common.format_document(answer, output)
