"""The worker cluster's identity as the current connection has verified it, and whether it allows writes.

`admission.cluster_identity` compares the identity with the record. A connection is to one cluster; an accepted
replacement gets a new connection. Writes wait until the uid is in the WorkerCluster, so that no cluster with our
objects is unrecognisable.
"""

from adapter import names
from adapter.admission import cluster_identity
from adapter.admission.cluster_identity import IdentityConflict, IdentityRecord
from adapter.shell.kube.client import Unreachable
from adapter.shell.kube.reflector import WrongCluster

NO_IDENTITY_NAMESPACE = "it shows no namespace kube-system, by which it would be known"


class ConnectionIdentity:
    def __init__(self, known: IdentityRecord) -> None:
        self.known = known
        self.uid = ""  # of the stores' cluster; empty: none yet
        self._verified = False  # since it was last unreachable
        self._last_uid, self._last_refusal = "", IdentityConflict("", "")

    def verify_uid(self, uid: str) -> None:
        """Verify a cluster's uid; raises WrongCluster, or Unreachable without a uid."""
        self._verified = False
        if not uid:
            raise Unreachable(NO_IDENTITY_NAMESPACE)
        self._last_uid = uid
        self._last_refusal = cluster_identity.find_conflict(self.known, uid) or self._replaced_refusal(uid)
        if self._last_refusal.reason:
            raise WrongCluster(self._last_refusal.reason, self._last_refusal.message)
        self.uid, self._verified = uid, True

    def _replaced_refusal(self, uid: str) -> IdentityConflict:
        """The conflict of an accepted replacement while the stores still hold the first cluster's objects."""
        if self.uid in ("", uid):
            return IdentityConflict("", "")
        return IdentityConflict(
            names.ConditionReason.IDENTITY_MISMATCH,
            "it is another cluster now, as announced; connecting again",
        )

    def mark_unverified(self) -> None:
        """Require another proof: another cluster may answer next."""
        self._verified = False

    def still_valid_for(self, known: IdentityRecord) -> bool:
        """Whether the last uid is in conflict with the new record if and only if it was with the previous one."""
        return not self._last_uid or bool(cluster_identity.find_conflict(known, self._last_uid)) == bool(
            self._last_refusal.reason
        )

    def fence_reason(self) -> str:
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
