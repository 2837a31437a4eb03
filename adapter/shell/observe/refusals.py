"""Why can a gang's workers not be made in any worker cluster: never, or not before somebody makes what they refer to?

The sentences are made from the job, its Workload and what `sources` has read of its Secrets and ConfigMaps. It reads none of
those itself, and writes nothing: who is refused, and how, is for gang/lifecycle.py.
"""

from adapter import names
from adapter.admission import refusal
from adapter.admission.policy import Chosen
from adapter.objects.raw import Raw
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager import Home
from adapter.shell.observe.policies import Policies
from adapter.shell.observe.sources import Sources

CHANGED = (
    "Delete the job, and submit it again then."  # the same, where something else than the job is to be changed first
)
AGAIN = "Delete the job, and submit it again without that."  # the end of a refusal, for a job that is submitted


class Refusals:
    """Says why jobs cannot run remotely."""

    def __init__(self, home: Home, policies: Policies, sources: Sources) -> None:
        self._home, self._policies, self._sources = home, policies, sources

    def refusal(self, work: Workload, check: str, chosen: Chosen | None) -> str:
        """Why a job can never run remotely, empty when it can."""
        ours = work.job and work.job.kind in names.RAY_KINDS
        raw = self._home.job(work.job) if work.job and ours else {}
        if found := self.refusal_of(raw, work, check, chosen):
            return found
        why = self._sources.refusal(work, self._policies.remote_podsets(work, check))
        return f"{_of_job(work)}: {why}. {CHANGED}" if why else ""

    def absent(self, work: Workload, check: str) -> str:
        """Which Secret or ConfigMap its workers need and the manager does not have, empty when it has all."""
        why = self._sources.absent(work, self._policies.remote_podsets(work, check))
        return f"{_of_job(work)}: {why}." if why else ""

    def refusal_of(self, raw: Raw, work: Workload, check: str, chosen: Chosen | None) -> str:
        """The same for a Workload whose RayJob or RayCluster is `raw`, whether or not it is submitted."""
        if work.job is None or work.job.kind not in names.RAY_KINDS:
            kind = work.job.kind if work.job else "pod"
            return f"AdmissionCheck {check} dispatches {' and '.join(names.RAY_KINDS)} only, found a {kind}; use another queue."
        if beside := refusal.of_job(work.job.kind, raw):
            return f"{work.job.kind} {work.job.name}: {beside}. {AGAIN}"
        given = self._account_given(chosen)
        for podset in self._policies.remote_podsets(work, check):
            why = refusal.of_template(podset.template, account_given=given)
            if why:
                where = f"{work.job.kind} {work.job.name}: worker group {podset.name}"
                return f"{where}: {why}. {AGAIN}"
        if chosen and chosen.policy.gang == "BestEffort" and (why := refusal.waits_for_all(work.job.kind, raw)):
            return f"{work.job.kind} {work.job.name}: {why}"
        return ""

    def _account_given(self, chosen: Chosen | None) -> bool:
        """Whether each cluster that the policy names has a service account for the pods that come to it; where no policy can be
        read nothing is planned, and nothing shall be refused for good."""
        named = (self._home.worker_clusters.named(cluster) for cluster in chosen.clusters) if chosen else ()
        pods = [(raw.get("spec") or {}).get("pods") or {} for raw in named if raw]
        return all(one.get("serviceAccountName") for one in pods) and (bool(pods) or chosen is None)


def _of_job(work: Workload) -> str:
    return f"{work.job.kind} {work.job.name}" if work.job else f"Workload {work.name}"
