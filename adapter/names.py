"""Which words leave the process: every label, annotation, gate, condition, reason and API name, once.

Grouped by who writes it on which object. A string that is compared with, or written to, an API server stands here and
nowhere else; sentences for people stand beside the decision that they explain.
"""

from typing import Final

DOMAIN: Final = "rayspan.dev"

# --- our own API -------------------------------------------------------------------------------------------------
API_VERSION: Final = f"{DOMAIN}/v1alpha1"
WORKER_CLUSTER_KIND: Final = "WorkerCluster"
DISPATCH_POLICY_KIND: Final = "DispatchPolicy"
PLACEMENT_KIND: Final = "Placement"
CONTROLLER_NAME: Final = f"{DOMAIN}/dispatch"  # AdmissionCheck.spec.controllerName; also our field manager
FIELD_MANAGER: Final = CONTROLLER_NAME
EVENT_SOURCE: Final = "rayspan"
SYSTEM_NAMESPACE: Final = "rayspan-system"
# Where stock Kueue runs, and so where MultiKueue reads its kubeconfigs: nothing in the API tells of another place.
KUEUE_NAMESPACE: Final = "kueue-system"
KUEUE_CONFIG_KEY: Final = "controller_manager_config.yaml"  # of the ConfigMap there that it reads when it starts
LEASE_API_VERSION: Final = "coordination.k8s.io/v1"
LEASE: Final = "rayspan-controller"  # held by the replica that leads, in the system namespace
SERVICE: Final = "rayspan-controller"  # what answers `rayspan plan`, in the system namespace
PLAN_PORT_NAME: Final = "plan"  # of the Service; its name is part of the right to ask
PLAN_PATH: Final = "/plan"
VERSION_PATH: Final = "/version"  # beside it, for the same people: which version answers
UNUSABLE_REASON: Final = "UnusableJob"  # of an answer: what was sent is no job for which a plan can be made
NOT_READY_REASON: Final = "NotReady"  # of an answer: the controller does not see enough yet
PLAN_ROLE: Final = "rayspan-plan"  # shipped, and bound to nobody
DRAIN_ROLE: Final = "rayspan-drain"  # the same
COPIES_ROLE: Final = "rayspan-copies"  # shipped, and bound where a namespace is opened
CONTROLLER_ACCOUNT: Final = "rayspan-controller"
DEPLOYMENT: Final = "rayspan-controller"  # its image is that of probe pods, too
PREFLIGHT_MANAGER: Final = f"{DOMAIN}/preflight"  # field manager of what `rayspan preflight` writes
ADMISSION: Final = (
    "rayspan-admission"  # Deployment, Service, account and Secret of the optional webhooks, in the system namespace
)
ADMISSION_CERTIFICATE: Final = "rayspan-admission-certificate"  # the Job that makes their certificate, and its account
ADMISSION_MANAGER: Final = f"{DOMAIN}/admission"  # field manager of what that Job writes
WARNINGS: Final = "rayspan-warnings"  # name of the ValidatingWebhookConfiguration,
WARNINGS_WEBHOOK: Final = f"warnings.{DOMAIN}"  # and the webhook in it
GATE_PATH: Final = "/gate"  # where the API server asks for the gate
WARNINGS_PATH: Final = "/warnings"  # and for what its user should know
KUBECONFIG_KEY: Final = "kubeconfig"  # the same key that MultiKueue reads, so one Secret serves both
TLS_CERT_KEY: Final = "tls.crt"  # of a Secret of type kubernetes.io/tls
TLS_PRIVATE_KEY_KEY: Final = "tls.key"  # the same

# --- the component worker-access: logs of a worker, and commands in it, by rights in the manager ----------------------------
WORKER_ACCESS_KIND: Final = "WorkerAccess"
ACCESS_POLICY: Final = "rayspan-access"  # who may have such a grant says the ValidatingAdmissionPolicy of this name
ACCESS_ACCOUNT: Final = "rayspan-access"  # also its Deployment and its Service, in the system namespace
ACCESS_PROXIED: Final = f"https:{ACCESS_ACCOUNT}:443"  # the Service and port, as a right to its proxy names them
ACCESS_ROLE: Final = "rayspan-access-user"  # shipped, and bound to nobody
LOGS_ROLE: Final = "rayspan-worker-logs"  # of a worker cluster, whose admin adds and binds it
EXEC_ROLE: Final = "rayspan-worker-exec"  # the same
DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"  # of users, on a pod

# --- written by `rayspan join` on both sides of a membership -----------------------------------------------------------
JOIN_MANAGER: Final = f"{DOMAIN}/join"  # field manager of all that it writes
WORKER_ACCOUNT: Final = "rayspan-worker"  # in the system namespace of a worker cluster: whom the manager speaks for
TENANT_ROLE: Final = "rayspan-worker-tenant"  # shipped; bound to that account in each opened namespace
JOINED_PREFIX: Final = f"{DOMAIN}/joined-"  # on that account, and a manager's identity: what it calls this cluster
CLUSTER_ID_ANNOTATION: Final = (
    f"{DOMAIN}/cluster-id"  # on the manager's Secret: the identity of the cluster it leads to
)
TOKEN_ENDS_ANNOTATION: Final = f"{DOMAIN}/token-expires"  # on the same: when, as the worker cluster's API server said
ROOT_AUTHORITY: Final = "kube-root-ca.crt"  # the ConfigMap in which Kubernetes shows its API server's authority

# --- written by our check, through Kueue, on a manager's worker pods ------------------------------------------------
PLACEMENT_LABEL: Final = f"{DOMAIN}/placement"  # value: name of the Placement in the pod's namespace
# "<cluster>/<round>/<role>/<count> ...": the slots of a worker group, in the order of the index that KubeRay gives its pods
SLOTS_ANNOTATION: Final = f"{DOMAIN}/slots"
LOCK_NODE_SELECTOR: Final = f"{DOMAIN}/remote"  # no node carries it: the second lock beside the gate
LOCK_NODE_SELECTOR_VALUE: Final = "only"

# --- written by the admission policy on the same pods ---------------------------------------------------------------
GATE: Final = f"{DOMAIN}/dispatch"
GATE_POLICY: Final = (
    "rayspan-gate"  # name of the MutatingAdmissionPolicy and of its binding, and of the webhook's configuration
)
GATE_WEBHOOK: Final = f"gate.{DOMAIN}"  # the webhook in that
SERVICE_POLICY: Final = "rayspan-rayservice"  # the same, of what keeps KubeRay's hands off a RayService's RayClusters

# --- written by us on a manager's Workload, while it makes room for those behind it ------------------------------------
YIELDED_ANNOTATION: Final = f"{DOMAIN}/yielded-at"  # when; only while spec.active is False on our account
YIELDS_ANNOTATION: Final = f"{DOMAIN}/yields"  # how often until now
# --- the layout of the manager's queues with the flavors local and remote ---------------------------------------------
POOL_LABEL: Final = (
    f"{DOMAIN}/pool"  # the key of both flavors' node label, of the remote one's taint, and on LocalQueues
)
POOL_REMOTE: Final = "remote"  # its value where workers go away

# --- written by us on a manager's worker pods ------------------------------------------------------------------------
CLUSTER_LABEL: Final = f"{DOMAIN}/cluster"  # also on every remote object and, as a Ray label, on every remote node
ZONE_ANNOTATION: Final = f"{DOMAIN}/zone"  # of users, on a worker group's template: the only zone that it may run in
# "<cluster>/<round>/<role>/<index>", also on the remote pod; of one that has the slot that it came with, at the first news of its copy
SLOT_ANNOTATION: Final = f"{DOMAIN}/slot"
# True once the remote pod was seen, Unknown while its cluster cannot be seen; the pod's absence later means lost.
DISPATCHED_CONDITION: Final = f"{DOMAIN}/Dispatched"

# --- written by us on remote objects (pods, group Workloads, anchors) --------------------------------------------------
MANAGER_LABEL: Final = f"{DOMAIN}/manager"  # which manager cluster they belong to
WORKLOAD_UID_LABEL: Final = f"{DOMAIN}/workload-uid"  # the manager's Workload; of an elastic job: the job
POD_UID_LABEL: Final = f"{DOMAIN}/pod-uid"  # the manager's pod
# `ray.io/x` is `rayspan.dev/ray-x` there (`rewrite.affinity`): under its own name it would wake a KubeRay
RAY_CLUSTER_LABEL: Final = f"{DOMAIN}/ray-cluster"
RAY_GROUP_LABEL: Final = f"{DOMAIN}/ray-group"
WORKLOAD_ANNOTATION: Final = f"{DOMAIN}/workload"  # name of the manager's Workload; of an elastic job: its kind and uid
COPY_LABEL: Final = f"{DOMAIN}/copy"  # on a copied Secret or ConfigMap
COPY_OF_ANNOTATION: Final = f"{DOMAIN}/copy-of"  # for people, on a copied Secret or ConfigMap: what it is a copy of
ROUND_ANNOTATION: Final = f"{DOMAIN}/round"  # which planning round of the attempt made the share
HEAD_ANNOTATION: Final = f"{DOMAIN}/head"  # the head's IP that a remote pod was made with, if we must follow it
HEAD_SERVICE_ANNOTATION: Final = f"{DOMAIN}/head-service"  # the Service that leads it to the head, if we mirror that
PROBE_LABEL: Final = f"{DOMAIN}/probe"  # on the pods of a preflight, in all clusters: which run made them
TRIAL_POD: Final = "rayspan-trial"  # what the name of a dry run's pod begins with
DRAIN_REASON: Final = "rayspan: the pod is being stopped"  # what Ray says of a node that was drained: why it died

# --- Services and EndpointSlices that we mirror ---------------------------------------------------------------------------
DISCOVERY_GROUP: Final = "discovery.k8s.io"
DISCOVERY_API_VERSION: Final = f"{DISCOVERY_GROUP}/v1"
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
SLICE_MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"  # others keep off what is not theirs

# the same label on the slices that lead a RayService's requests to workers elsewhere: another cluster's mirrors may be beside them
SERVING_SLICES: Final = f"serving.{DOMAIN}"
SERVING_POLICY: Final = "rayspan-rayservice-endpoints"  # what bounds these, and the rights to write them, are called so

# --- read on a manager's ClusterQueue, whose admin writes it ------------------------------------------------------------
QUOTA_ANNOTATION: Final = (
    f"{DOMAIN}/quota-from-workers"  # "true": its remote flavor's quota is that of the worker queues
)

# --- read on a WorkerCluster by the guard of manifests/workercluster-guard.yaml --------------------------------------------
FORCE_DELETE_ANNOTATION: Final = f"{DOMAIN}/force-delete"  # "true": its workers are given up with it

# --- read on a WorkerCluster, whose admin writes it -------------------------------------------------------------------------
ACCEPT_ANNOTATION: Final = f"{DOMAIN}/accept-cluster"  # the uid that its cluster may have, whatever is on record
TAKE_OVER_ANNOTATION: Final = f"{DOMAIN}/take-over"  # the holder from whom the claim to its cluster is taken

# --- written by us on Leases ----------------------------------------------------------------------------------------------
LEASE_VERSION_ANNOTATION: Final = f"{DOMAIN}/lease-version"  # on a claim: how far its manager's Lease was
TAKEN_ANNOTATION: Final = f"{DOMAIN}/taken-over"  # on a claim, "true": whom it was taken from may write for a while yet
GAVE_BACK_ANNOTATION: Final = f"{DOMAIN}/gave-back"  # on the manager's Lease: who held it last, when nobody does

# --- Kueue -----------------------------------------------------------------------------------------------------------
KUEUE_DOMAIN: Final = "kueue.x-k8s.io"
KUEUE_API_VERSION: Final = f"{KUEUE_DOMAIN}/v1beta2"
QUEUE_LABEL: Final = f"{KUEUE_DOMAIN}/queue-name"
JOB_UID_LABEL: Final = f"{KUEUE_DOMAIN}/job-uid"  # on a Workload: of the job that it was made of
PRIORITY_CLASS_LABEL: Final = f"{KUEUE_DOMAIN}/priority-class"
DEFAULT_QUEUE: Final = "default"  # the LocalQueue that Kueue gives to jobs that name none, where it exists
ELASTIC_ANNOTATION: Final = (
    f"{KUEUE_DOMAIN}/elastic-job"  # of users, and on Workloads, "true": the job may change its size
)
ELASTIC_GATE: Final = f"{KUEUE_DOMAIN}/elastic-job"  # on its pods, until the manager's quota is theirs
SLICE_REPLACED: Final = "WorkloadSliceReplaced"  # why a Workload of it is finished that has a successor
MULTIKUEUE_CONTROLLER_NAME: Final = f"{KUEUE_DOMAIN}/multikueue"
MANAGED_LABEL: Final = f"{KUEUE_DOMAIN}/managed"
GROUP_WORKLOAD_ANNOTATION: Final = f"{KUEUE_DOMAIN}/is-group-workload"
SUSPENDING_PARENT_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-suspending-parent"
GROUP_NAME_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-group-name"
GROUP_TOTAL_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-group-total-count"
GROUP_SERVING_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-group-serving"
PREBUILT_ANNOTATION: Final = f"{KUEUE_DOMAIN}/prebuilt-workload-name"
ROLE_HASH_ANNOTATION: Final = f"{KUEUE_DOMAIN}/role-hash"
QUOTA_RESERVED: Final = "QuotaReserved"  # conditions of a Workload
REQUEUED: Final = "Requeued"
STRICT_FIFO: Final = "StrictFIFO"  # of a ClusterQueue's spec.queueingStrategy
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
FINISHED: Final = "Finished"
ACTIVE: Final = "Active"  # condition of AdmissionCheck, ClusterQueue, LocalQueue
CHECK_PENDING: Final = "Pending"
CHECK_READY: Final = "Ready"
CHECK_RETRY: Final = "Retry"
CHECK_REJECTED: Final = "Rejected"

# --- node autoscalers, in worker clusters --------------------------------------------------------------------------------
KARPENTER_STAYS_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"  # "true": its node is not consolidated under it
AUTOSCALER_STAYS_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"  # "false": the same
# --- the cluster inventory API (SIG Multicluster) -----------------------------------------------------------------------
INVENTORY_API_VERSION: Final = "multicluster.x-k8s.io/v1alpha1"
SECRET_READER: Final = "secretreader"  # the access provider whose program reads a token out of a Secret
EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"  # of a provider's cluster: what its program is told
TOKEN_KEY: Final = "token"  # of that Secret

# --- Volcano, in worker clusters whose pods it schedules ---------------------------------------------------------------
VOLCANO_SCHEDULER: Final = "volcano"  # as a pod's schedulerName
VOLCANO_GROUP: Final = "scheduling.volcano.sh"
VOLCANO_API_VERSION: Final = f"{VOLCANO_GROUP}/v1beta1"
VOLCANO_QUEUE_ANNOTATION: Final = f"{VOLCANO_GROUP}/queue-name"
POD_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"  # of a pod; its scheduler reads no other

# --- KubeRay and Ray -------------------------------------------------------------------------------------------------
RAY_DOMAIN: Final = "ray.io"
RAY_API_VERSION: Final = "ray.io/v1"
RAY_NODE_TYPE_LABEL: Final = "ray.io/node-type"
RAY_GCS_CLUSTER_LABEL: Final = "ray.io/cluster"
RAY_GCS_GROUP_LABEL: Final = "ray.io/group"
# on each worker, from KubeRay 1.6 on: the lowest number that no other pod of its group has, from 0
RAY_REPLICA_INDEX_LABEL: Final = "ray.io/worker-group-replica-index"
RAY_HOST_INDEX_LABEL: Final = "ray.io/replica-host-index"  # on a worker whose replica has several hosts
HEAD: Final = "head"  # podset and node type of the head
WORKER: Final = "worker"  # node type of the others
SUBMITTER: Final = "submitter"  # podset of a RayJob's submitter
RAY_KINDS: Final = ("RayJob", "RayCluster")
RAY_SERVICE: Final = "RayService"  # its RayClusters are the jobs, each by itself
RAY_CLUSTER_FRAMEWORK: Final = "ray.io/raycluster"  # Kueue's integration by which each of them is one
RAY_SERVICE_FRAMEWORK: Final = "ray.io/rayservice"  # Kueue's integration that would take the whole service for one job
RAY_ORIGIN_LABEL: Final = "ray.io/originated-from-crd"  # on a RayCluster: the kind that KubeRay made it of
RAY_SERVE_LABEL: Final = (
    "ray.io/serve"  # on the pods of such a RayCluster, "true" on each of its workers; and on Services for Serve
)
SERVE_PORT_NAME: Final = "serve"  # of Services for Serve: where its proxies listen for HTTP
INCREMENTAL_UPGRADE: Final = "NewClusterWithIncrementalUpgrade"  # a RayService's spec.upgradeStrategy.type
RAY_ZONE_LABEL: Final = "ray.io/availability-zone"
RAY_RESIZE_ANNOTATION: Final = "ray.io/ippr"  # on a RayCluster: its autoscaler resizes pods in place
RAY_REGION_LABEL: Final = "ray.io/availability-region"
RAY_MARKET_LABEL: Final = f"{RAY_DOMAIN}/market-type"
# Of users, for Ray's autoscaler, in autoscalerOptions.env: after how many seconds it gives up a worker that does not start, and one that
# nobody needs any more before it did (ray:python/ray/autoscaler/v2/instance_manager/config.py)
RAY_ALLOCATED_TIMEOUT: Final = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
RAY_PENDING_IDLE_TIMEOUT: Final = "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S"
RAY_ACCELERATOR_LABEL: Final = f"{RAY_DOMAIN}/accelerator-type"

# --- conditions and reasons of ours ------------------------------------------------------------------------------------
READY: Final = "Ready"  # condition of WorkerCluster and DispatchPolicy: all that is known of it, summed up
CONNECTED: Final = "Connected"  # condition of WorkerCluster
ANOTHER_CLUSTER: Final = "AnotherCluster"  # reasons of that: what answers is not the cluster that is on record,
REGISTERED_TWICE: Final = "RegisteredTwice"  # or that of another WorkerCluster,
HELD_BY_ANOTHER: Final = "HeldByAnother"  # or it is, and somebody else holds the claim to it;
NOT_CLAIMED: Final = "NotClaimed"  # it is seen, and nobody can hold one, or ask for it now
REACHABLE: Final = "Reachable"  # condition of WorkerCluster, written by `rayspan preflight`
PLACED: Final = "Placed"  # condition of Placement

# reasons of a manager's worker pod that is failed, so that KubeRay replaces its worker
NOT_STARTED: Final = "RemotePodNotStarted"  # in time, so it is to start elsewhere
POD_GONE: Final = "RemotePodGone"  # somebody deleted or evicted its copy
POD_STUCK: Final = "RemotePodStuck"  # its copy should have ended long ago
WORKER_LOST: Final = "WorkerLost"  # its cluster is silent, for too long or also to Ray's head
LOSSES: Final = (NOT_STARTED, POD_GONE, POD_STUCK, WORKER_LOST)

# sentences
EVEN: Final = "Even"  # how the sentence begins by which a gang hears that it would not fit if nothing else ran
