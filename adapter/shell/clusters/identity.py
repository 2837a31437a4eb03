"""The identity of one worker cluster as the current connection has verified it, and whether it allows writes.

Whether it matches the record is decided in `admission.cluster_identity`. A connection is to one cluster for its whole
life: when another cluster is accepted in its place, a new connection reads everything again. Writes wait until the uid
is in the WorkerCluster, so that nothing of ours is in a cluster that could not be recognised later.
"""

from adapter import names
from adapter.admission import cluster_identity
from adapter.admission.cluster_identity import IdentityConflict, IdentityRecord
from adapter.shell.kube.client import Unreachable
from adapter.shell.kube.reflector import WrongCluster

NO_IDENTITY_NAMESPACE = "it shows no namespace kube-system, by which it would be known"


class ConnectionIdentity:
    """The verified identity of a worker cluster."""

    def __init__(self, known: IdentityRecord) -> None:
        self.known = known
        self.uid = ""  # the cluster that the stores hold; empty: none yet
        self._verified = False  # it was verified since it was last unreachable
        self._last_uid, self._last_refusal = "", IdentityConflict("", "")  # the last answer, and its verdict

    def verify_uid(self, uid: str) -> None:
        """Verify the uid of a cluster; raises WrongCluster, or Unreachable without a uid, when it must not be used."""
        self._verified = False
        if not uid:
            raise Unreachable(NO_IDENTITY_NAMESPACE)
        self._last_uid = uid
        self._last_refusal = cluster_identity.find_conflict(self.known, uid) or self._replaced_refusal(uid)
        if self._last_refusal.reason:
            raise WrongCluster(self._last_refusal.reason, self._last_refusal.message)
        self.uid, self._verified = uid, True

    def _replaced_refusal(self, uid: str) -> IdentityConflict:
        """The conflict when an accepted replacement answers while the stores still hold the first cluster."""
        if self.uid in ("", uid):
            return IdentityConflict("", "")
        return IdentityConflict(
            names.ConditionReason.IDENTITY_MISMATCH,
            "it is another cluster by now, as was announced; it is connected anew",
        )

    def mark_unverified(self) -> None:
        """Record that it is unreachable: another cluster may answer next."""
        self._verified = False

    def still_valid_for(self, known: IdentityRecord) -> bool:
        """Whether the connection stays valid under a new record: the verdict on its last uid is unchanged."""
        return not self._last_uid or bool(cluster_identity.find_conflict(known, self._last_uid)) == bool(
            self._last_refusal.reason
        )

    def fence_reason(self) -> str:
        """Why nothing may be written to the cluster now, empty when it may."""
        if not self._verified:
            return (
                f"it is not sent, because worker cluster {self.known.name} has not shown yet "
                "that it is the one that it was"
            )
        if self.known.uid != self.uid:
            return (
                f"it is not sent, because WorkerCluster {self.known.name} does not hold the uid of its cluster yet "
                "(status.clusterUID; are its CRDs as new as the controller?)"
            )
        return ""
