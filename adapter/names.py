"""The words that leave the process: labels, annotations, gates, conditions, reasons and API names, each defined once.

They are grouped by the object and by the writer. The comment above a word of ours is its row in docs/reference.md.
Messages for people are beside the decisions that they explain.
"""

from enum import StrEnum
from typing import Final

DOMAIN: Final = "rayspan.dev"

# --- our API -----------------------------------------------------------------------------------------------------
API_VERSION: Final = f"{DOMAIN}/v1alpha1"
WORKER_CLUSTER_KIND: Final = "WorkerCluster"
DISPATCH_POLICY_KIND: Final = "DispatchPolicy"
PLACEMENT_KIND: Final = "Placement"
WORKER_ACCESS_KIND: Final = "WorkerAccess"
# AdmissionCheck.spec.controllerName, and the controller's field manager.
CONTROLLER_NAME: Final = f"{DOMAIN}/dispatch"
FIELD_MANAGER: Final = CONTROLLER_NAME
EVENT_SOURCE: Final = "rayspan"

# --- objects in the system namespace of the manager cluster ------------------------------------------------------
SYSTEM_NAMESPACE: Final = "rayspan-system"
DEPLOYMENT: Final = "rayspan-controller"  # its image runs in preflight pods, too
CONTROLLER_ACCOUNT: Final = "rayspan-controller"
LEASE_API_VERSION: Final = "coordination.k8s.io/v1"
LEASE: Final = "rayspan-controller"  # held by the replica that leads
SERVICE: Final = "rayspan-controller"  # answers `rayspan plan`
PLAN_PORT_NAME: Final = "plan"  # of the Service; the right to ask for plans names it
PLAN_PATH: Final = "/plan"
VERSION_PATH: Final = "/version"
# Status.reason of a response: no plan can be made for the job in the request.
INVALID_JOB_REASON: Final = "InvalidJob"
# Status.reason of a response: the controller's caches are not complete yet.
NOT_READY_REASON: Final = "NotReady"

# --- ClusterRoles that we ship -----------------------------------------------------------------------------------
PLAN_ROLE: Final = "rayspan-plan"  # shipped without a binding
DRAIN_ROLE: Final = "rayspan-drain"  # shipped without a binding
USER_ROLE: Final = "rayspan-user"  # shipped without a binding
COPIED_OBJECTS_ROLE: Final = "rayspan-copies"  # bound in each opened namespace

# --- field managers of our commands ------------------------------------------------------------------------------
PREFLIGHT_FIELD_MANAGER: Final = f"{DOMAIN}/preflight"
PREFLIGHT_NAMES_FIELD_MANAGER: Final = f"{DOMAIN}/preflight-names"  # of the condition NamesExist
ADMISSION_FIELD_MANAGER: Final = f"{DOMAIN}/admission"  # of the Job that makes the webhooks' certificate
JOIN_FIELD_MANAGER: Final = f"{DOMAIN}/join"  # of what `rayspan join` writes; in a worker cluster, `-` and the manager

# --- the component admission: optional webhooks ------------------------------------------------------------------
ADMISSION_COMPONENT: Final = "rayspan-admission"  # its Deployment, Service, account and Secret
ADMISSION_CERTIFICATE: Final = "rayspan-admission-certificate"  # the Job that makes the certificate, and its account
WARNINGS_CONFIGURATION: Final = "rayspan-warnings"  # the ValidatingWebhookConfiguration
WARNINGS_WEBHOOK: Final = f"warnings.{DOMAIN}"  # the webhook in it
WARNINGS_PATH: Final = "/warnings"
GATE_PATH: Final = "/gate"
GATE_WEBHOOK: Final = f"gate.{DOMAIN}"
# The MutatingAdmissionPolicy, its binding, and the configuration of the webhook that replaces it.
GATE_POLICY: Final = "rayspan-gate"
# The policy, and its webhook, that keeps KubeRay from starting the RayClusters of a RayService before Kueue admits
# them.
SERVICE_POLICY: Final = "rayspan-rayservice"

# --- the component worker-access: logs of a worker and commands in it, by rights in the manager cluster ----------
ACCESS_POLICY: Final = "rayspan-access"  # the ValidatingAdmissionPolicy that decides who may have a grant
ACCESS_ACCOUNT: Final = "rayspan-access"  # also its Deployment and its Service
ACCESS_SERVICE_PROXY: Final = f"https:{ACCESS_ACCOUNT}:443"  # Service and port, as a right to services/proxy names them
ACCESS_ROLE: Final = "rayspan-access-user"  # shipped without a binding
LOGS_ROLE: Final = "rayspan-worker-logs"  # of a worker cluster, whose admin adds and binds it
EXEC_ROLE: Final = "rayspan-worker-exec"  # of a worker cluster, whose admin adds and binds it

# --- Secrets -----------------------------------------------------------------------------------------------------
KUBECONFIG_KEY: Final = "kubeconfig"  # MultiKueue reads the same key, so one Secret serves both
TLS_CERT_KEY: Final = "tls.crt"  # of a Secret of type kubernetes.io/tls
TLS_PRIVATE_KEY_KEY: Final = "tls.key"  # of a Secret of type kubernetes.io/tls
TOKEN_KEY: Final = "token"  # of the Secret that a ClusterProfile's access provider reads

# --- membership: written by `rayspan join` in both clusters ------------------------------------------------------
WORKER_ACCOUNT: Final = "rayspan-worker"  # the manager's ServiceAccount in the system namespace of a worker cluster
TENANT_ROLE: Final = "rayspan-worker-tenant"  # shipped; bound to that account in each opened namespace
# On the manager's account in a worker cluster, followed by a manager's identity: the name it has for this cluster.
JOINED_PREFIX: Final = f"{DOMAIN}/joined-"
# On the manager's Secret: the identity of the worker cluster.
CLUSTER_ID_ANNOTATION: Final = f"{DOMAIN}/cluster-id"
# On the manager's Secret: when its token expires, as the worker cluster's API server said.
TOKEN_EXPIRES_ANNOTATION: Final = f"{DOMAIN}/token-expires"
ROOT_CA_CONFIG_MAP: Final = "kube-root-ca.crt"  # where Kubernetes publishes the authority of its API server

# --- a manager's worker pods: written by our check, through Kueue ------------------------------------------------
# On a manager's worker pod: its Placement, in the pod's namespace.
PLACEMENT_LABEL: Final = f"{DOMAIN}/placement"
# On a manager's worker pod: the slots of its worker group, `<cluster>/<round>/<role>/<count> ...`, by KubeRay's replica
# index.
SLOTS_ANNOTATION: Final = f"{DOMAIN}/slots"
# Node selector of a manager's worker pod. No node has it, so it locks the pod out of the manager cluster beside the
# gate.
LOCK_NODE_SELECTOR: Final = f"{DOMAIN}/remote"
LOCK_NODE_SELECTOR_VALUE: Final = "only"

# --- a manager's worker pods: written by the admission policy ----------------------------------------------------
# Scheduling gate of a manager's worker pod.
GATE: Final = f"{DOMAIN}/dispatch"

# --- a manager's worker pods: written by the controller ----------------------------------------------------------
# The worker cluster. On a manager's worker pod, on every remote object, and as a Ray label on every remote Ray node.
CLUSTER_LABEL: Final = f"{DOMAIN}/cluster"
# On a pod: its slot, `<cluster>/<round>/<role>/<index>`. A pod with a template slot gets it with its first status.
SLOT_ANNOTATION: Final = f"{DOMAIN}/slot"
# Written by users on a worker group's template: the only zone that it may run in.
ZONE_ANNOTATION: Final = f"{DOMAIN}/zone"
# Written by users on a worker group's template: the only region that it may run in.
REGION_ANNOTATION: Final = f"{DOMAIN}/region"
# Written by users on a worker group's template: a level of the worker clusters' Topology. Kueue there places the
# group's workers of each share in one domain of it.
REQUIRED_TOPOLOGY_ANNOTATION: Final = f"{DOMAIN}/podset-required-topology"
# Written by users on a worker group's template: as the required one, but over several domains if none has capacity.
PREFERRED_TOPOLOGY_ANNOTATION: Final = f"{DOMAIN}/podset-preferred-topology"
# Written by users on a worker group's template, `true`: Kueue places the workers on nodes of a Topology, in any domain.
UNCONSTRAINED_TOPOLOGY_ANNOTATION: Final = f"{DOMAIN}/podset-unconstrained-topology"

# --- a manager's Workload ----------------------------------------------------------------------------------------
# On a Workload that we deactivated, so that those behind it get its quota: since when. It is reactivated after that.
DEACTIVATED_AT_ANNOTATION: Final = f"{DOMAIN}/yielded-at"
# On a Workload: how often we deactivated it.
DEACTIVATIONS_ANNOTATION: Final = f"{DOMAIN}/yields"
# On a Workload that we deactivated after Kueue had queued it again, behind those queued before: since when it queues.
REQUEUED_AT_ANNOTATION: Final = f"{DOMAIN}/requeued-at"
# On a Workload: the worker clusters that plans of its next attempt exclude, and until when; a JSON object.
PAST_EXCLUSIONS_ANNOTATION: Final = f"{DOMAIN}/excluded"

# --- queues: written by admins -----------------------------------------------------------------------------------
# Key of the node label of the flavors `local` and `remote`, of the remote flavor's taint, and of a label on
# LocalQueues.
POOL_LABEL: Final = f"{DOMAIN}/pool"
POOL_REMOTE: Final = "remote"  # the value of the pool whose workers run in worker clusters
# On a manager's ClusterQueue, `true`: the nominal quota of its remote flavor follows that of the worker clusters'
# queues.
QUOTA_ANNOTATION: Final = f"{DOMAIN}/quota-from-workers"

# On a LocalQueue, `true`: the component job-defaults adds the lines that Kueue requires to jobs in it.
JOB_DEFAULTS_LABEL: Final = f"{DOMAIN}/job-defaults"
# On a RayJob or RayCluster: the lines that its queue has added.
DEFAULTED_ANNOTATION: Final = f"{DOMAIN}/defaulted"
# On a RayJob, RayCluster or RayService, with the component job-labels: the worker clusters that have its workers, with
# `_` between.
CLUSTERS_LABEL: Final = f"{DOMAIN}/clusters"
# Written by users on a RayJob, RayCluster or RayService: the worker clusters that its workers leave and keep away from,
# with commas between.
MOVE_FROM_ANNOTATION: Final = f"{DOMAIN}/move-from"
JOB_DEFAULTS_POLICY: Final = "rayspan-job-defaults"

# --- WorkerClusters: written by admins ---------------------------------------------------------------------------
# On a WorkerCluster, `true`: manifests/workercluster-guard.yaml lets it be deleted although it has workers.
FORCE_DELETE_ANNOTATION: Final = f"{DOMAIN}/force-delete"
# On a WorkerCluster: the cluster identity that it may have, whatever is on record.
ACCEPT_CLUSTER_ANNOTATION: Final = f"{DOMAIN}/accept-cluster"
# On a WorkerCluster: the holder from which the claim to its cluster is taken over.
TAKE_OVER_ANNOTATION: Final = f"{DOMAIN}/take-over"

# --- Leases ------------------------------------------------------------------------------------------------------
# On a claim: the resourceVersion that its manager's Lease had.
LEASE_VERSION_ANNOTATION: Final = f"{DOMAIN}/lease-version"
# On a claim, `true`: it was taken over, and its earlier holder may still write for a while.
TAKEN_OVER_ANNOTATION: Final = f"{DOMAIN}/taken-over"
# On the manager's Lease: who held it last, while nobody does.
GAVE_BACK_ANNOTATION: Final = f"{DOMAIN}/gave-back"

# --- remote objects: pods, group Workloads, anchors and copied objects -------------------------------------------
# On a remote object: the identity of the manager cluster that it belongs to.
MANAGER_LABEL: Final = f"{DOMAIN}/manager"
# On a remote object: the uid of the manager's Workload; of an elastic job, the uid of the job.
WORKLOAD_UID_LABEL: Final = f"{DOMAIN}/workload-uid"
# On a remote object: the name of the manager's Workload; of an elastic job, the kind and uid of the job.
WORKLOAD_ANNOTATION: Final = f"{DOMAIN}/workload"
# On a remote object: the planning round that made its share.
ROUND_ANNOTATION: Final = f"{DOMAIN}/round"
# On a group Workload: the names of its extended resources in the manager, and its own ones; a JSON object.
RESOURCE_NAMES_ANNOTATION: Final = f"{DOMAIN}/resource-names"
# On a podset of a group Workload: what Kueue counts for the resource claims of one pod, as its WorkerCluster says; a
# JSON object.
CLAIMED_RESOURCES_ANNOTATION: Final = f"{DOMAIN}/claimed-resources"
# On a group Workload: the priority that it was created with, before admission in the worker cluster.
PRIORITY_ANNOTATION: Final = f"{DOMAIN}/priority"
# On a remote pod: the uid of the manager pod.
POD_UID_LABEL: Final = f"{DOMAIN}/pod-uid"
# On a remote pod: the value of `ray.io/cluster`. Under its own name it would make a KubeRay there act on the pod.
REMOTE_RAY_CLUSTER_LABEL: Final = f"{DOMAIN}/ray-cluster"
# On a remote pod: the value of `ray.io/group`.
REMOTE_RAY_GROUP_LABEL: Final = f"{DOMAIN}/ray-group"
# On a remote pod: the IP address of the head that it was created with, if we must follow the head.
HEAD_IP_ANNOTATION: Final = f"{DOMAIN}/head"
# On a remote pod: the mirrored Service through which it reaches the head.
HEAD_SERVICE_ANNOTATION: Final = f"{DOMAIN}/head-service"
# On a copied Secret or ConfigMap: it is a copied object.
COPIED_OBJECT_LABEL: Final = f"{DOMAIN}/copy"
# On a copied Secret or ConfigMap, for people: its original.
COPIED_FROM_ANNOTATION: Final = f"{DOMAIN}/copy-of"
# On the pods of a preflight, in all clusters: the run that made them.
PROBE_LABEL: Final = f"{DOMAIN}/probe"
DRY_RUN_POD_PREFIX: Final = "rayspan-trial"  # of the name of the pod in a dry run
DRAIN_MESSAGE: Final = "rayspan: the pod is being stopped"  # Ray's reason for the death of a node that was drained

# --- Services and EndpointSlices that we mirror ------------------------------------------------------------------
DISCOVERY_GROUP: Final = "discovery.k8s.io"
DISCOVERY_API_VERSION: Final = f"{DISCOVERY_GROUP}/v1"
RESOURCE_GROUP: Final = "resource.k8s.io"  # of devices by claims (DRA)
RESOURCE_API_VERSION: Final = f"{RESOURCE_GROUP}/v1"
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
SLICE_MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"  # other controllers leave such slices alone
# The value of that label on slices that lead a RayService's requests to remote workers. The Service may have slices of
# another cluster's mirror, too.
SERVING_SLICES_MANAGER: Final = f"serving.{DOMAIN}"
SERVING_POLICY: Final = "rayspan-rayservice-endpoints"  # the policy that limits these slices; the role to write them

# --- the relay of clusters without a route -----------------------------------------------------------------------
# On the head's pod and on remote pods: the identity of their relayed network.
RELAY_LABEL: Final = f"{DOMAIN}/relay"
# On the Services and slices that lead routers to a head: the head's namespace.
RELAY_NAMESPACE_LABEL: Final = f"{DOMAIN}/relay-namespace"
# On the head's pod: the fingerprint of the key that its credentials were made from.
RELAY_KEY_ANNOTATION: Final = f"{DOMAIN}/relay-key"
# On remote pods: host and port that their sidecars dial.
RELAY_ADDRESS_ANNOTATION: Final = f"{DOMAIN}/relay-address"
RELAY_HEAD_POLICY: Final = "rayspan-relay-head"  # the policies that change and check such pods
# Ports in pods with Ray, outside the ranges from which Ray and kernels choose.
RELAY_SERVER_PORT: Final = 29170  # in a head's pod: what routers dial
RELAY_PROXY_PORT: Final = 29171  # on each pod's loopback: what Ray's gRPC asks to connect
RELAY_HOOK_PORT: Final = 29172  # on a head's loopback: what the server asks whether a node may log in
RELAY_ROUTER_PORT: Final = 7443  # in a router's pod
RELAY_KEY_SECRET: Final = "rayspan-relay-key"  # in our namespace: what all certificates and tokens are made from
RELAY_VOLUME: Final = "rayspan-relay"
RELAY_CLIENT: Final = "rayspan-relay"  # the sidecar of each node
RELAY_SERVER: Final = "rayspan-relay-server"  # a sidecar of a head
RELAY_HOOK: Final = "rayspan-relay-hook"  # a sidecar of a head
POD_IP_ENV: Final = "RAYSPAN_POD_IP"

# --- Kueue -------------------------------------------------------------------------------------------------------
KUEUE_DOMAIN: Final = "kueue.x-k8s.io"
KUEUE_API_VERSION: Final = f"{KUEUE_DOMAIN}/v1beta2"
# Where stock Kueue runs, and where MultiKueue reads its kubeconfigs. The API does not name another namespace.
KUEUE_NAMESPACE: Final = "kueue-system"
KUEUE_CONFIG_KEY: Final = "controller_manager_config.yaml"  # of the ConfigMap that Kueue reads when it starts
QUEUE_LABEL: Final = f"{KUEUE_DOMAIN}/queue-name"
JOB_UID_LABEL: Final = f"{KUEUE_DOMAIN}/job-uid"  # on a Workload: its job
PRIORITY_CLASS_LABEL: Final = f"{KUEUE_DOMAIN}/priority-class"
DEFAULT_QUEUE: Final = "default"  # the LocalQueue of jobs that name none, where it exists
# Written by users on jobs, and by Kueue on Workloads, `true`: the job may change its size.
ELASTIC_ANNOTATION: Final = f"{KUEUE_DOMAIN}/elastic-job"
ELASTIC_GATE: Final = f"{KUEUE_DOMAIN}/elastic-job"  # on the job's pods, until they have the manager's quota
SLICE_REPLACED: Final = "WorkloadSliceReplaced"  # reason of Finished on a workload slice that has a successor
MULTIKUEUE_CONTROLLER_NAME: Final = f"{KUEUE_DOMAIN}/multikueue"
PROVISIONING_CONTROLLER_NAME: Final = f"{KUEUE_DOMAIN}/provisioning-request"
MANAGED_LABEL: Final = f"{KUEUE_DOMAIN}/managed"
GROUP_WORKLOAD_ANNOTATION: Final = f"{KUEUE_DOMAIN}/is-group-workload"
SUSPENDING_PARENT_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-suspending-parent"
GROUP_NAME_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-group-name"
GROUP_TOTAL_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-group-total-count"
GROUP_SERVING_ANNOTATION: Final = f"{KUEUE_DOMAIN}/pod-group-serving"
PREBUILT_ANNOTATION: Final = f"{KUEUE_DOMAIN}/prebuilt-workload-name"
ROLE_HASH_ANNOTATION: Final = f"{KUEUE_DOMAIN}/role-hash"
# On a pod template, and on each pod of a podset with a topology request.
KUEUE_REQUIRED_TOPOLOGY: Final = f"{KUEUE_DOMAIN}/podset-required-topology"
KUEUE_PREFERRED_TOPOLOGY: Final = f"{KUEUE_DOMAIN}/podset-preferred-topology"
KUEUE_UNCONSTRAINED_TOPOLOGY: Final = f"{KUEUE_DOMAIN}/podset-unconstrained-topology"
# Kueue's provisioning check writes it on the pods for which an autoscaler provided nodes
# (kueue:pkg/controller/admissionchecks/provisioning/controller.go).
PROVISIONING_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
QUOTA_RESERVED: Final = "QuotaReserved"  # conditions of a Workload
REQUEUED: Final = "Requeued"
BACKOFF_FINISHED: Final = "BackoffFinished"  # its reason after a check's Retry or PodsReadyTimeout
STRICT_FIFO: Final = "StrictFIFO"  # of a ClusterQueue's spec.queueingStrategy
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
# How its reason ends where an admission check stopped the Workload (kueue:apis/kueue/v1beta2/workload_types.go,
# WorkloadEvictedByAdmissionCheck, also after WorkloadDeactivated).
CHECK_EVICTION_SUFFIX: Final = "AdmissionCheck"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"  # its reason once all pods were ready
ACTIVE: Final = "Active"  # condition of AdmissionCheck, ClusterQueue and LocalQueue
CHECK_PENDING: Final = "Pending"
CHECK_READY: Final = "Ready"
CHECK_RETRY: Final = "Retry"
CHECK_REJECTED: Final = "Rejected"

# --- node autoscalers in worker clusters -------------------------------------------------------------------------
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"  # `true`: Karpenter does not consolidate its node
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"  # `false`: its node stays

# --- the cluster inventory API (SIG Multicluster) ----------------------------------------------------------------
INVENTORY_API_VERSION: Final = "multicluster.x-k8s.io/v1alpha1"
SECRET_READER: Final = "secretreader"  # the access provider whose program reads a token out of a Secret
EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"  # of a provider's cluster: the input of its program

# --- pods ----------------------------------------------------------------------------------------------------------
# Kubernetes copies these labels from a node to each pod that it binds there
# (docs/upstream.md, "Zone and region of a bound pod").
NODE_LOCATION_LABELS: Final = frozenset({"topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
DEFAULT_SCHEDULER: Final = "default-scheduler"  # as a pod's schedulerName
DEFAULT_CONTAINER_ANNOTATION: Final = "kubectl.kubernetes.io/default-container"  # of users, on a pod

# --- Volcano, in worker clusters whose pods it schedules ---------------------------------------------------------
VOLCANO_SCHEDULER: Final = "volcano"  # as a pod's schedulerName
VOLCANO_GROUP: Final = "scheduling.volcano.sh"
VOLCANO_API_VERSION: Final = f"{VOLCANO_GROUP}/v1beta1"
VOLCANO_QUEUE_ANNOTATION: Final = f"{VOLCANO_GROUP}/queue-name"
POD_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"  # of a pod; Volcano's scheduler reads no other

# --- KubeRay and Ray ---------------------------------------------------------------------------------------------
RAY_DOMAIN: Final = "ray.io"
RAY_API_VERSION: Final = "ray.io/v1"
RAY_TOKEN_ENV: Final = "RAY_AUTH_TOKEN"  # of a head with token authentication
RAY_NODE_TYPE_LABEL: Final = "ray.io/node-type"
RAY_GCS_CLUSTER_LABEL: Final = "ray.io/cluster"
RAY_GCS_GROUP_LABEL: Final = "ray.io/group"
# On each worker, from KubeRay 1.6 on: the lowest number that no other pod of its group has, from 0.
RAY_REPLICA_INDEX_LABEL: Final = "ray.io/worker-group-replica-index"
# On each worker of a replica of several hosts: the replica's name, and the worker's number in it.
RAY_REPLICA_NAME_LABEL: Final = "ray.io/worker-group-replica-name"
RAY_HOST_INDEX_LABEL: Final = "ray.io/replica-host-index"
GCS_WAITER: Final = "wait-gcs-ready"  # the init container that KubeRay adds to every worker
HEAD_SERVICE_SUFFIX: Final = "-head-svc"  # kuberay: GenerateHeadServiceName, where headService names none
HEAD: Final = "head"  # podset and node type of the head
WORKER: Final = "worker"  # node type of the others
SUBMITTER: Final = "submitter"  # podset of a RayJob's submitter
RAY_KINDS: Final = ("RayJob", "RayCluster")
RAY_SERVICE: Final = "RayService"  # each of its RayClusters is a job
RAY_CLUSTER_FRAMEWORK: Final = "ray.io/raycluster"  # Kueue's integration by which each RayCluster is a job
RAY_SERVICE_FRAMEWORK: Final = "ray.io/rayservice"  # Kueue's integration by which a RayService is one job
RAY_ORIGIN_LABEL: Final = "ray.io/originated-from-crd"  # on a RayCluster: the kind that KubeRay created it from
# `true` on each worker of a RayService's RayCluster, and on Services for Serve.
RAY_SERVE_LABEL: Final = "ray.io/serve"
SERVE_PORT_NAME: Final = "serve"  # of Services for Serve: the HTTP port of its proxies
INCREMENTAL_UPGRADE: Final = "NewClusterWithIncrementalUpgrade"  # a RayService's spec.upgradeStrategy.type
RAY_ZONE_LABEL: Final = "ray.io/availability-zone"
RAY_REGION_LABEL: Final = "ray.io/availability-region"
RAY_MARKET_LABEL: Final = f"{RAY_DOMAIN}/market-type"
RAY_ACCELERATOR_LABEL: Final = f"{RAY_DOMAIN}/accelerator-type"
RAY_IN_PLACE_RESIZE_ANNOTATION: Final = "ray.io/ippr"  # on a RayCluster: its autoscaler resizes pods in place
# Environment variables that users set for Ray's autoscaler in autoscalerOptions.env: seconds until it gives up a worker
# that does not start, and seconds until it gives up a pending worker that is not needed any more
# (ray:python/ray/autoscaler/v2/instance_manager/config.py).
RAY_ALLOCATION_TIMEOUT_ENV: Final = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
RAY_AUTOSCALER_V2_ENV: Final = "RAY_enable_autoscaler_v2"
RAY_PENDING_IDLE_TIMEOUT_ENV: Final = "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S"

# --- our conditions ----------------------------------------------------------------------------------------------
# Of WorkerCluster and DispatchPolicy: a summary of everything that is known.
READY: Final = "Ready"
# Of WorkerCluster: its API server answers and its queues are read.
CONNECTED: Final = "Connected"
# Of WorkerCluster, written by `rayspan preflight`: pods there and pods elsewhere reach each other.
REACHABLE: Final = "Reachable"
# Of WorkerCluster, written by `rayspan preflight`: what its spec.pods names exists there.
NAMES_EXIST: Final = "NamesExist"
# Of WorkerCluster: its workers dial the relay's address of spec.network, and heads accept new workers there.
RELAY_CURRENT: Final = "RelayCurrent"
# Of Placement: every share is admitted. Also the state of such a Placement.
PLACED: Final = "Placed"
# Of Placement, with minWorkersTimeout: the minimum of the gang's workers runs.
MIN_WORKERS_RUNNING: Final = "MinWorkersRunning"
# Of a manager's worker pod: True once its remote pod was observed, Unknown while the worker cluster is unreachable.
# A remote pod that disappears after that is lost.
DISPATCHED_CONDITION: Final = f"{DOMAIN}/Dispatched"

# --- reasons of a manager's worker pod that we fail, so that KubeRay replaces it ---------------------------------
# A running controller of an earlier version reads them back, so they do not change.

# The remote pod did not start in time; the worker is placed elsewhere.
REMOTE_POD_NOT_STARTED: Final = "RemotePodNotStarted"
# The remote pod was not ready for so long that Kueue was about to evict its whole share; it is created again.
REMOTE_POD_NOT_READY: Final = "RemotePodNotReady"
# The remote pod was deleted or evicted in its worker cluster.
REMOTE_POD_GONE: Final = "RemotePodGone"
# The remote pod is being deleted and does not end in time.
REMOTE_POD_STUCK: Final = "RemotePodStuck"
# The worker cluster has been unreachable for longer than `workerLostTimeout`, or Ray's head lost the node.
WORKER_LOST: Final = "WorkerLost"
# The job is finished, so the remote pod was deleted. The worker is not lost, and its pod does not fail: KubeRay would
# replace it.
JOB_FINISHED: Final = "JobFinished"
LOSS_REASONS: Final = (
    REMOTE_POD_NOT_STARTED,
    REMOTE_POD_NOT_READY,
    REMOTE_POD_GONE,
    REMOTE_POD_STUCK,
    WORKER_LOST,
)


class ConditionReason(StrEnum):
    """Reasons of the conditions of AdmissionCheck, WorkerCluster and DispatchPolicy.

    Also of MinWorkersRunning on a Placement, and of Dispatched on a pod.
    """

    # Ready, AdmissionCheck Active: everything is in order.
    READY = "Ready"
    # WorkerCluster Connected: its API server answers and its queues are read.
    CONNECTED = "Connected"
    # WorkerCluster Connected: its API server does not answer, or denies access.
    UNREACHABLE = "Unreachable"
    # The WorkerCluster or the DispatchPolicy, or what it refers to, is invalid.
    BAD_CONFIGURATION = "BadConfiguration"
    # WorkerCluster Connected: the cluster that answers is not the one on record.
    IDENTITY_MISMATCH = "IdentityMismatch"
    # WorkerCluster Connected: another WorkerCluster leads to the same cluster.
    DUPLICATE_CLUSTER = "DuplicateCluster"
    # WorkerCluster Connected: another manager holds the claim to the cluster.
    CLAIM_CONFLICT = "ClaimConflict"
    # WorkerCluster Connected: the cluster is observed, and no claim to it can be held now.
    NOT_CLAIMED = "NotClaimed"
    # WorkerCluster Connected: the cluster is observed, and no Service of a head can be mirrored there.
    HEADS_NOT_MIRRORED = "HeadsNotMirrored"
    # WorkerCluster Ready: its admin cordoned it, so no new workers go there.
    CORDONED = "Cordoned"
    # WorkerCluster Ready: its workers are moved away, and no new ones go there.
    DRAINING = "Draining"
    # WorkerCluster Reachable: pods there and in the manager cluster reach each other, or pods there reach the relay.
    REACHABLE = "Reachable"
    # WorkerCluster Reachable: a connection between pods gets no answer, or there is no route.
    NO_ROUTE = "NoRoute"
    # WorkerCluster Reachable: a connection between pods is refused.
    CONNECTION_REFUSED = "ConnectionRefused"
    # WorkerCluster Reachable: a connection between pods breaks.
    CONNECTION_BROKEN = "ConnectionBroken"
    # WorkerCluster Reachable: both clusters use the same pod addresses.
    ADDRESSES_OVERLAP = "AddressesOverlap"
    # WorkerCluster Reachable: its pods do not reach the address of the relay.
    RELAY_NOT_REACHED = "RelayNotReached"
    # WorkerCluster RelayCurrent: workers there dial the address of spec.network, and heads accept new workers.
    RELAY_CURRENT = "RelayCurrent"
    # WorkerCluster RelayCurrent: heads were started with another key than the relay has now.
    RELAY_KEY_CHANGED = "RelayKeyChanged"
    # WorkerCluster RelayCurrent: workers dial another address of the relay than spec.network has now.
    RELAY_ADDRESS_CHANGED = "RelayAddressChanged"
    # WorkerCluster Reachable: small packets arrive and large ones do not.
    LARGE_PACKETS_LOST = "LargePacketsLost"
    # WorkerCluster NamesExist: all that its spec.pods names for the namespace of the preflight exists there.
    NAMES_EXIST = "NamesExist"
    # WorkerCluster NamesExist: something that its spec.pods names does not exist there.
    NAMES_MISSING = "NamesMissing"
    # WorkerCluster NamesExist: its account may not look for something that its spec.pods names.
    NAMES_NOT_SEEN = "NamesNotSeen"
    # DispatchPolicy Ready, AdmissionCheck Active: the policy selects no WorkerCluster.
    NO_CLUSTER = "NoCluster"
    # DispatchPolicy Ready: the policy names a WorkerCluster that does not exist.
    UNKNOWN_CLUSTER = "UnknownCluster"
    # AdmissionCheck Active: its parameters cannot be used.
    BAD_PARAMETERS = "BadParameters"
    # AdmissionCheck Active: worker pods would not be gated, so no gang is admitted.
    GATE_MISSING = "GateMissing"
    # AdmissionCheck Active: the CRD of Placement is older than the controller, so no gang is placed.
    CRD_OUTDATED = "CRDOutdated"
    # AdmissionCheck Active: the queues that list the check cannot work with it.
    INVALID_QUEUE_LAYOUT = "InvalidQueueLayout"
    # Placement MinWorkersRunning: the minimum of the gang's workers runs.
    MIN_WORKERS_RUNNING = "MinWorkersRunning"
    # Placement MinWorkersRunning: fewer workers have run so far.
    MIN_WORKERS_STARTING = "MinWorkersStarting"
    # Placement MinWorkersRunning: the minimum ran before, and fewer workers run now.
    BELOW_MIN_WORKERS = "BelowMinWorkers"
    # Dispatched: the remote pod exists.
    CREATED = "Created"
    # Dispatched: no node of the worker cluster takes the remote pod; the message is its scheduler's.
    UNSCHEDULABLE = "Unschedulable"
    # Dispatched: a container of the remote pod does not start, or was killed.
    CONTAINER_FAILING = "ContainerFailing"
    # Dispatched: the worker cluster is unreachable; the worker is left running.
    CLUSTER_UNREACHABLE = "ClusterUnreachable"


class ReasonCode(StrEnum):
    """Codes of a `Reason`: why a cluster, a share or a gang is as it is.

    A Placement has one as the reason of its condition Placed. Where no code says more, that reason is its state.
    """

    # Waiting: the gang fits as soon as capacity is free.
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    # Waiting: the gang would not fit if nothing else ran; a quota must be raised or the job made smaller.
    NEVER_FITS = "NeverFits"
    # Waiting: an elastic job has no quota in the manager cluster now.
    NO_MANAGER_QUOTA = "NoManagerQuota"
    # The worker cluster is unreachable.
    CLUSTER_UNREACHABLE = "ClusterUnreachable"
    # The controller has just started, and reads the worker cluster for the first time.
    CLUSTER_SYNCING = "ClusterSyncing"
    # The namespace has more objects in a cluster than are kept of it, or one that is too large to be read.
    NAMESPACE_INCOMPLETE = "NamespaceIncomplete"
    # The worker cluster denies the share.
    SHARE_REJECTED = "ShareRejected"
    # The worker cluster denies pods of the job.
    PODS_REJECTED = "PodsRejected"
    # The share needs preemption, and is created after all others are admitted.
    PREEMPTION_DEFERRED = "PreemptionDeferred"
    # The share borrows quota, and is created after those of its cluster that do not.
    BORROWING_DEFERRED = "BorrowingDeferred"
    # The share is not observed in the worker cluster yet.
    SHARE_NOT_CREATED = "ShareNotCreated"
    # The share is being deleted in the worker cluster.
    SHARE_DELETING = "ShareDeleting"
    # Kueue evicted the share in the worker cluster.
    SHARE_EVICTED = "ShareEvicted"
    # The share waits for quota in the worker cluster.
    QUOTA_PENDING = "QuotaPending"
    # An admission check of the worker cluster is pending.
    CHECK_PENDING = "AdmissionCheckPending"
    # An admission check of the worker cluster refused the share. Withdrawing: so the round cannot be admitted now.
    CHECK_REFUSED = "AdmissionCheckRefused"
    # Withdrawing: shares were not admitted within the reservation timeout.
    RESERVATION_TIMEOUT = "ReservationTimeout"
    # Withdrawing: the workers of the round are not needed any more, or their number changed.
    NOT_NEEDED = "NotNeeded"
    # Withdrawing: workers must leave a cluster of the round, which is drained or which the job moves away from.
    CLUSTER_DRAINING = "ClusterDraining"
    # Withdrawing: the gang cannot be planned now.
    FAILED_DISPATCH = "FailedDispatch"
    # Withdrawing: KubeRay rejects the job, and creates no pods.
    REJECTED_BY_KUBERAY = "RejectedByKubeRay"


class OrphanReason(StrEnum):
    """Why a remote object was deleted: the label `reason` of `rayspan_orphans_deleted_total`."""

    # The manager pod is gone. Every worker ends so.
    POD_GONE = "pod-gone"
    # The manager pod holds a slot in another cluster.
    SLOT_ELSEWHERE = "slot-elsewhere"
    # An anchor has no share: left by a crash, a second writer or a denied share.
    NO_SHARE = "no-share"


class EventReason(StrEnum):
    """Reasons of the events that we record. A condition that turns bad is an event with the condition's reason, too."""

    # Job: every share is admitted; the message says where the workers go.
    PLACED = "Placed"
    # Job: lost workers have a slot again, or workers of an elastic job do after a new plan.
    REPLACED = "Replaced"
    # Job: there is no capacity for it, or for some of its workers, yet.
    WAITING = "Waiting"
    # Job: worker clusters did not admit shares in time, or their admission checks refused them; the shares are deleted
    # and planned again.
    RESERVATION_TIMEOUT = "ReservationTimeout"
    # Job: its Workload is deactivated for a moment, so that those behind it get its quota.
    DEACTIVATED = "Deactivated"
    # Job: it can never run in a worker cluster.
    REJECTED = "Rejected"
    # Job: KubeRay rejects it; the message has KubeRay's words. It holds no quota in worker clusters until it is edited.
    REJECTED_BY_KUBERAY = "RejectedByKubeRay"
    # Job: it cannot be dispatched before somebody changes an object that the message names.
    FAILED_DISPATCH = "FailedDispatch"
    # Job: shares are lost, and their workers are planned again.
    SHARE_LOST = "ShareLost"
    # Job: workers did not start in time and are placed elsewhere, or were not created and their quota is given back.
    START_TIMEOUT = "StartTimeout"
    # Job: fewer workers than its minimum ran for minWorkersTimeout, so it queues again.
    MIN_WORKERS_TIMEOUT = "MinWorkersTimeout"
    # Job: workers were not ready for so long that Kueue would stop all workers of their share; they are created again.
    READINESS_TIMEOUT = "ReadinessTimeout"
    # Job: not all of its pods are ready, and the manager's Kueue stops the whole job if that lasts.
    PODS_NOT_READY = "PodsNotReady"
    # Job: its priority changed, and shares that hold quota keep the earlier one.
    PRIORITY_OUTDATED = "PriorityOutdated"
    # Job: workers of a deleted share still end, and hold their quota until they have ended.
    WAITING_FOR_TERMINATION = "WaitingForTermination"
    # Job: a worker cluster does not let a share be deleted, which holds quota there for nothing.
    FAILED_SHARE_DELETION = "FailedShareDeletion"
    # Job: a dry run of a remote pod could not be made, so its share holds what the template requests.
    DRY_RUN_FAILED = "DryRunFailed"
    # Job: a remote pod requests more than its share holds.
    POD_EXCEEDS_SHARE = "PodExceedsShare"
    # Job: a worker cluster denies a remote pod, or the mirror of the head's Service.
    REMOTE_POD_REJECTED = "RemotePodRejected"
    # Job: a remote pod cannot be created, finds no node, or its containers fail.
    WORKER_FAILING = "WorkerFailing"
    # Job: its head was started with another key than the relay has now, so no new worker is created.
    RELAY_KEY_CHANGED = "RelayKeyChanged"
    # Job: a pod carries our label and belongs to no RayCluster of this job.
    REMOTE_POD_CONFLICT = "RemotePodConflict"
    # Job: Ray's head cannot be asked which workers it hears from, while their worker cluster is unreachable.
    HEAD_UNREACHABLE = "HeadUnreachable"
    # Job: Ray settings of zone and cluster that the user set are kept.
    ZONE_SETTINGS_KEPT = "ZoneSettingsKept"
    # Job: Ray's autoscaler gives up pending workers after a time that the message says.
    AUTOSCALER_TIMEOUT = "AutoscalerTimeout"
    # Job: the whole RayCluster of a RayService restarts if one share is lost, by its policy.
    RESTARTS_ON_SHARE_LOSS = "RestartsOnShareLoss"
    # Job: its workers name a Service, an image or a scheduler that only the manager has.
    REFERS_TO_MANAGER = "RefersToManager"
    # Job: a part of its annotation `rayspan.dev/move-from` is ignored.
    MOVE_FROM_IGNORED = "MoveFromIgnored"
    # Pod: a worker pod lacks the gate or the node selector, so it gets no remote pod.
    POD_NOT_GATED = "PodNotGated"
    # RayService: requests pass the head, and are not led straight to the workers.
    REQUESTS_VIA_HEAD = "RequestsViaHead"
    # ClusterQueue: its nominal quota was set to that of the worker clusters' queues.
    QUOTA_AGGREGATED = "QuotaAggregated"
    # ClusterQueue: its nominal quota cannot be computed or written.
    FAILED_QUOTA_AGGREGATION = "FailedQuotaAggregation"
    # Namespace: it has more objects than are kept of it, and its jobs are left as they are until some are deleted.
    NAMESPACE_INCOMPLETE = "NamespaceIncomplete"
    # WorkerCluster: its API server went back to an earlier state, as from a backup.
    RESTORED = "Restored"
