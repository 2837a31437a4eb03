"""Who was one worker cluster found to be, by the connection that stands now, and may it be written to?

Whether that is who it is on record to be says `admission.cluster_identity`. A connection is of one cluster for as long as it lives: when
another one is accepted in its place, everything is read anew by a new one. Writes wait until the uid stands in the
WorkerCluster, so nothing of ours is in a cluster that nobody could know again.
"""

from adapter import names
from adapter.admission import cluster_identity
from adapter.admission.cluster_identity import Known, Refusal
from adapter.shell.kube.client import Unreachable
from adapter.shell.kube.reflector import Stranger

NO_NAMESPACE = "it shows no namespace kube-system, by which it would be known"


class Identity:
    """What is known of who a worker cluster is."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.uid = ""  # whose objects the stores hold; empty: nobody's yet
        self._proved = False  # it was asked since it was last out of sight, and is the one
        self._found, self._refused = "", Refusal("", "")  # the last answer, and what was thought of it

    def met(self, found: str) -> None:
        """Take the uid that a cluster has; raises Stranger, or Unreachable, where nothing of it may be used."""
        self._proved = False
        if not found:
            raise Unreachable(NO_NAMESPACE)
        self._found = found
        self._refused = cluster_identity.refusal(self.known, found) or self._exchanged(found)
        if self._refused.reason:
            raise Stranger(self._refused.reason, self._refused.why)
        self.uid, self._proved = found, True

    def _exchanged(self, found: str) -> Refusal:
        """One that was accepted beforehand is there now, and the stores hold what was in the first one."""
        if self.uid in ("", found):
            return Refusal("", "")
        return Refusal(names.ANOTHER_CLUSTER, "it is another cluster by now, as was announced; it is connected anew")

    def lost(self) -> None:
        """Note that it is out of sight: who answers next may be another one."""
        self._proved = False

    def holds(self, known: Known) -> bool:
        """Whether the connection can go on under what is on record now: its last answer is thought of as it was."""
        return not self._found or bool(cluster_identity.refusal(known, self._found)) == bool(self._refused.reason)

    def fence(self) -> str:
        """Why nothing may be written there now, empty when it may."""
        if not self._proved:
            return f"it is not sent, because worker cluster {self.known.name} has not shown yet that it is the one that it was"
        if self.known.uid != self.uid:
            return (
                f"it is not sent, because WorkerCluster {self.known.name} does not hold the uid of its cluster yet "
                "(status.clusterUID; are its CRDs as new as the controller?)"
            )
        return ""
