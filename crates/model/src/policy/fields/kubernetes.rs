//! The fields of Kubernetes' own kinds, as of Kubernetes 1.35, with those that earlier versions had.

use super::{
    Shape::{self, Any, List},
    object,
};

/// Of a whole document; `metadata` is the same everywhere.
const TOP: &[&str] = &["apiVersion", "kind"];

pub(super) const METADATA: Shape = object(
    &[("labels", Any), ("annotations", Any), ("ownerReferences", List(&OWNER_REFERENCE))],
    &[
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "finalizers",
        "managedFields",
    ],
);

const OWNER_REFERENCE: Shape =
    object(&[], &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"]);

pub(super) const LABEL_SELECTOR: Shape = object(
    &[("matchLabels", Any), ("matchExpressions", List(&object(&[], &["key", "operator", "values"])))],
    &[],
);

pub(super) static NAMESPACE: Shape =
    object(&[("metadata", METADATA), ("spec", object(&[], &["finalizers"])), ("status", Any)], TOP);

pub(super) static NODE: Shape =
    object(&[("metadata", METADATA), ("spec", NODE_SPEC), ("status", NODE_STATUS)], TOP);

const NODE_SPEC: Shape = object(
    &[("taints", List(&object(&[], &["key", "value", "effect", "timeAdded"])))],
    &["podCIDR", "podCIDRs", "providerID", "unschedulable", "configSource", "externalID"],
);

const NODE_STATUS: Shape = object(
    &[("addresses", List(&object(&[], &["type", "address"])))],
    &[
        "capacity",
        "allocatable",
        "phase",
        "conditions",
        "daemonEndpoints",
        "nodeInfo",
        "images",
        "volumesInUse",
        "volumesAttached",
        "config",
        "runtimeHandlers",
        "features",
        "declaredFeatures",
    ],
);

pub(super) static POD: Shape =
    object(&[("metadata", METADATA), ("spec", POD_SPEC), ("status", POD_STATUS)], TOP);

const POD_SPEC: Shape = object(
    &[("containers", List(&CONTAINER))],
    &[
        "nodeName",
        "hostNetwork",
        "serviceAccountName",
        "serviceAccount",
        "volumes",
        "initContainers",
        "ephemeralContainers",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        "dnsPolicy",
        "nodeSelector",
        "automountServiceAccountToken",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "securityContext",
        "imagePullSecrets",
        "hostname",
        "subdomain",
        "affinity",
        "schedulerName",
        "tolerations",
        "hostAliases",
        "priorityClassName",
        "priority",
        "dnsConfig",
        "readinessGates",
        "runtimeClassName",
        "enableServiceLinks",
        "preemptionPolicy",
        "overhead",
        "topologySpreadConstraints",
        "setHostnameAsFQDN",
        "os",
        "hostUsers",
        "schedulingGates",
        "resourceClaims",
        "resources",
        "hostnameOverride",
        "workloadRef",
    ],
);

const CONTAINER: Shape = object(
    &[("ports", List(&object(&[], &["name", "hostPort", "containerPort", "protocol", "hostIP"])))],
    &[
        "name",
        "image",
        "command",
        "args",
        "workingDir",
        "envFrom",
        "env",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "volumeMounts",
        "volumeDevices",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "imagePullPolicy",
        "securityContext",
        "stdin",
        "stdinOnce",
        "tty",
    ],
);

const POD_STATUS: Shape = object(
    &[("podIPs", List(&object(&[], &["ip"]))), ("conditions", List(&POD_CONDITION))],
    &[
        "phase",
        "podIP",
        "observedGeneration",
        "message",
        "reason",
        "nominatedNodeName",
        "hostIP",
        "hostIPs",
        "startTime",
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
        "qosClass",
        "resize",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "allocatedResources",
        "resources",
    ],
);

const POD_CONDITION: Shape = object(
    &[],
    &["type", "status", "observedGeneration", "lastProbeTime", "lastTransitionTime", "reason", "message"],
);

pub(super) static SERVICE: Shape =
    object(&[("metadata", METADATA), ("spec", SERVICE_SPEC), ("status", SERVICE_STATUS)], TOP);

const SERVICE_SPEC: Shape = object(
    &[
        ("selector", Any),
        ("ports", List(&object(&[], &["name", "protocol", "appProtocol", "port", "targetPort", "nodePort"]))),
        ("sessionAffinityConfig", object(&[("clientIP", object(&[], &["timeoutSeconds"]))], &[])),
    ],
    &[
        "type",
        "clusterIP",
        "clusterIPs",
        "externalIPs",
        "externalName",
        "externalTrafficPolicy",
        "internalTrafficPolicy",
        "trafficDistribution",
        "loadBalancerIP",
        "loadBalancerClass",
        "loadBalancerSourceRanges",
        "allocateLoadBalancerNodePorts",
        "healthCheckNodePort",
        "sessionAffinity",
        "publishNotReadyAddresses",
        "ipFamilies",
        "ipFamilyPolicy",
    ],
);

const SERVICE_STATUS: Shape = object(
    &[(
        "loadBalancer",
        object(&[("ingress", List(&object(&[], &["ip", "hostname", "ipMode", "ports"])))], &[]),
    )],
    &["conditions"],
);

pub(super) static ENDPOINT_SLICE: Shape = object(
    &[
        ("metadata", METADATA),
        ("endpoints", List(&ENDPOINT)),
        ("ports", List(&object(&[], &["name", "protocol", "port", "appProtocol"]))),
    ],
    &["apiVersion", "kind", "addressType"],
);

const HINTS: Shape = List(&object(&[], &["name"]));

const ENDPOINT: Shape = object(
    &[
        ("conditions", object(&[], &["ready", "serving", "terminating"])),
        ("hints", object(&[("forZones", HINTS), ("forNodes", HINTS)], &[])),
        (
            "targetRef",
            object(&[], &["kind", "name", "namespace", "uid", "apiVersion", "resourceVersion", "fieldPath"]),
        ),
    ],
    &["addresses", "hostname", "nodeName", "zone", "deprecatedTopology"],
);

pub(super) static NETWORK_POLICY: Shape =
    object(&[("metadata", METADATA), ("spec", NETWORK_POLICY_SPEC), ("status", Any)], TOP);

const NETWORK_POLICY_SPEC: Shape = object(
    &[
        ("podSelector", LABEL_SELECTOR),
        ("ingress", List(&object(&[("ports", PORTS), ("from", PEERS)], &[]))),
        ("egress", List(&object(&[("ports", PORTS), ("to", PEERS)], &[]))),
    ],
    &["policyTypes"],
);

const PORTS: Shape = List(&object(&[], &["protocol", "port", "endPort"]));

const PEERS: Shape = List(&object(
    &[("podSelector", LABEL_SELECTOR), ("namespaceSelector", LABEL_SELECTOR), ("ipBlock", IP_BLOCK)],
    &[],
));

pub(super) const IP_BLOCK: Shape = object(&[], &["cidr", "except"]);
