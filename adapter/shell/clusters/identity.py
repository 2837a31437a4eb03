"""Who was one worker cluster found to be, by the connection that stands now, and may it be written to?

Whether that is who it is on record to be says `admission.cluster_identity`. A connection is of one cluster for as long as it lives: when
another one is accepted in its place, everything is read anew by a new one. Writes wait until the uid stands in the
WorkerCluster, so nothing of ours is in a cluster that nobody could know again.
"""

from adapter import names
from adapter.admission import cluster_identity
from adapter.admission.cluster_identity import IdentityConflict, IdentityRecord
from adapter.shell.kube.client import Unreachable
from adapter.shell.kube.reflector import WrongCluster

NO_IDENTITY_NAMESPACE = "it shows no namespace kube-system, by which it would be known"


class ConnectionIdentity:
    """What is known of who a worker cluster is."""

    def __init__(self, known: IdentityRecord) -> None:
        self.known = known
        self.uid = ""  # whose objects the stores hold; empty: nobody's yet
        self._verified = False  # it was asked since it was last out of sight, and is the one
        self._last_uid, self._last_refusal = "", IdentityConflict("", "")  # the last answer, and what was thought of it

    def verify_uid(self, uid: str) -> None:
        """Take the uid that a cluster has; raises Stranger, or Unreachable, where nothing of it may be used."""
        self._verified = False
        if not uid:
            raise Unreachable(NO_IDENTITY_NAMESPACE)
        self._last_uid = uid
        self._last_refusal = cluster_identity.find_conflict(self.known, uid) or self._replaced_refusal(uid)
        if self._last_refusal.reason:
            raise WrongCluster(self._last_refusal.reason, self._last_refusal.message)
        self.uid, self._verified = uid, True

    def _replaced_refusal(self, uid: str) -> IdentityConflict:
        """One that was accepted beforehand is there now, and the stores hold what was in the first one."""
        if self.uid in ("", uid):
            return IdentityConflict("", "")
        return IdentityConflict(
            names.ConditionReason.IDENTITY_MISMATCH,
            "it is another cluster by now, as was announced; it is connected anew",
        )

    def mark_unverified(self) -> None:
        """Note that it is out of sight: who answers next may be another one."""
        self._verified = False

    def still_valid_for(self, known: IdentityRecord) -> bool:
        """Whether the connection can go on under what is on record now: its last answer is thought of as it was."""
        return not self._last_uid or bool(cluster_identity.find_conflict(known, self._last_uid)) == bool(
            self._last_refusal.reason
        )

    def fence_reason(self) -> str:
        """Why nothing may be written there now, empty when it may."""
        if not self._verified:
            return f"it is not sent, because worker cluster {self.known.name} has not shown yet that it is the one that it was"
        if self.known.uid != self.uid:
            return (
                f"it is not sent, because WorkerCluster {self.known.name} does not hold the uid of its cluster yet "
                "(status.clusterUID; are its CRDs as new as the controller?)"
            )
        return ""
