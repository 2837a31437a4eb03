"""What do the verbs have in common on the command line: how one is added, options that several share, how values are read?"""

import argparse
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

VerbParsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
RunVerb = Callable[[argparse.Namespace], int]

EXIT_OK, EXIT_ERROR = 0, 1  # exit codes
FILE: Final = "FILE"  # what stands for a path in a help; a shell completes it by itself
_CLUSTER_NAME_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
TOKEN_LIFETIME: Final = timedelta(days=90)  # of a token, where nobody says another
_DAYS_PATTERN = re.compile(r"(\d{1,5})d")


def add_verb(
    verbs: VerbParsers, name: str, run: RunVerb, summary: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """Add a verb, whose help is shown with its lines as they are written; `run` returns the exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    verb = verbs.add_parser(name, help=summary, description=description, epilog=epilog, formatter_class=raw)
    verb.set_defaults(run=run)
    return verb


def add_manager_login(verb: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster is the manager."""
    verb.add_argument("--context", default="", help="context of the kubeconfig: the manager cluster")
    verb.add_argument(
        "--kubeconfig",
        default="",
        metavar=FILE,
        help="path of the kubeconfig (default: $KUBECONFIG, else ~/.kube/config)",
    )


def add_output(verb: argparse.ArgumentParser) -> None:
    """Add what is printed: a table, or the document of which it is a view."""
    verb.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="default: table")


def add_stream_output(verb: argparse.ArgumentParser) -> None:
    """Add what is printed of something that changes: text, or a document a line for each change."""
    said = "default: text; json is one line for each change"
    verb.add_argument("-o", "--output", choices=("text", "json"), default="text", help=said)


def add_job_options(verb: argparse.ArgumentParser) -> None:
    """Add what a verb that looks at one job is told."""
    add_job_name(verb)
    add_output(verb)
    add_manager_login(verb)


def add_job_name(verb: argparse.ArgumentParser) -> None:
    """Add which job is meant."""
    verb.add_argument(
        "job",
        metavar="JOB",
        help="name of a RayJob, RayCluster or RayService, also as rayjob/NAME, raycluster/NAME or rayservice/NAME",
    )
    verb.add_argument("-n", "--namespace", default="", help="where it is (default: the context's)")


def add_worker_cluster(verb: argparse.ArgumentParser) -> None:
    """Add what every verb about a worker cluster that has joined is told."""
    verb.add_argument("cluster", metavar="WORKERCLUSTER", help="name of the WorkerCluster")
    add_manager_login(verb)


def add_membership_options(verb: argparse.ArgumentParser) -> None:
    """Add what every verb is told that speaks to both sides of a membership."""
    verb.add_argument("name", metavar="NAME", type=_parse_cluster_name, help="name of the WorkerCluster")
    verb.add_argument(
        "--worker-context", default="", metavar="CONTEXT", help="context of the kubeconfig: the worker cluster"
    )
    verb.add_argument(
        "--worker-kubeconfig",
        default="",
        metavar=FILE,
        help="path of the worker cluster's kubeconfig (default: the manager's file, with --worker-context)",
    )
    add_manager_login(verb)


def add_token_lifetime(verb: argparse.ArgumentParser) -> None:
    """Add how long a token is to last."""
    verb.add_argument(
        "--expires",
        type=_parse_lifetime,
        default=TOKEN_LIFETIME,
        metavar="DURATION",
        help="how long the token is to last, such as 30d or 12h (default: 90d); the worker cluster may give less",
    )


def parse_duration(text: str) -> timedelta:
    """Read an option such as 30s; argparse tells what is wrong with it."""
    from adapter.objects import specs  # it brings pydantic

    try:
        return specs.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_cluster_name(text: str) -> str:
    if _CLUSTER_NAME_PATTERN.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} cannot be the name of a WorkerCluster: use at most 63 lower-case letters, digits, '-' and '.', such as east"
    )


def _parse_lifetime(text: str) -> timedelta:
    from adapter import membership  # it brings YAML

    days = _DAYS_PATTERN.fullmatch(text)
    wanted = timedelta(days=int(days[1])) if days else parse_duration(text)
    if not membership.MIN_TOKEN_LIFETIME <= wanted <= membership.MAX_TOKEN_LIFETIME:
        raise argparse.ArgumentTypeError(f"{text} is no lifetime that an API server gives a token: from 10m to 49710d")
    return wanted
