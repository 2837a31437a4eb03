"""`rayspan where`: where are the head and the workers of a job? Prints them as a tree, by what the manager cluster shows.

Exit code 0: it is shown; 2: there is no such job; 1: the manager cannot be asked.
"""

import argparse
import json
from datetime import UTC, datetime

from adapter.cli import common, jobfacts, wheretable
from adapter.cli.common import DONE
from adapter.shell.kube.client import Client
from adapter.whereabouts.document import document
from adapter.whereabouts.facts import Facts

DESCRIPTION = """\
Shows where the head and the workers of a RayJob or RayCluster are, and how they are.
"""
EPILOG = """\
example:
  kubectl rayspan where my-job
  NAME                              CLUSTER   ZONE         NODE          PHASE     RESTARTS   SINCE
  RayJob default/my-job
  └─ RayCluster my-job-x7k2p
     ├─ my-job-x7k2p-head-6t9vq     manager   -            node-1        Running   0          5m
     ├─ east
     │  ├─ my-job-x7k2p-w-worker-a  east      us-east-1a   10.1.0.4      Running   0          4m
     │  └─ my-job-x7k2p-w-worker-b  east      us-east-1a   10.1.0.5      Running   0          4m
     └─ west
        └─ my-job-x7k2p-w-worker-c  west      us-west-2b   10.2.0.4      Running   1          4m

  Placed: 3 of 3 workers, 2 east, 1 west.
  Runs: Its head runs, and all of its 3 workers have joined. The job is RUNNING.

columns:
  ZONE      as Ray is told of it
  NODE      its name, and of a node in a worker cluster the address
  PHASE     of the pod; for one that is not well, why in a word
  RESTARTS  of its containers
  SINCE     for how long it has been ready, and before that for how long it has been there

It reads the manager cluster alone, with your rights: those of the ClusterRole view in the job's namespace are enough. Zones are in
WorkerClusters, which only administrators may read at first.

exit code: 0 it is shown, 2 there is no such job or the command line is wrong, 1 the manager cluster cannot be asked
"""


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options to the command line."""
    verb = common.add_verb(verbs, "where", "show where the workers of a job are", DESCRIPTION, EPILOG)
    jobfacts.add(verb)


def main(given: argparse.Namespace) -> int:
    """Read, print, and return the exit code."""

    async def tell(_: Client, facts: Facts) -> int:
        found = document(facts)
        as_json = given.output == "json"
        print(json.dumps(found, indent=2) + "\n" if as_json else wheretable.render(found, datetime.now(UTC)), end="")
        return DONE

    return jobfacts.attempt(given, tell)
