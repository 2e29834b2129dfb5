"""The components of the Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager and, for the Pods of a
virtual node, kube-scheduler."""

import json
import os
from pathlib import Path

from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.service.certwatcher import write_atomically
from poolhouse.stack.binaries import SCHEDULER, Programs
from poolhouse.stack.certificates import KUBELET_CLIENT, WEBHOOK_CLIENT
from poolhouse.stack.components import Component, HttpProbe, SocketProbe
from poolhouse.stack.engine.resources import FRONT_PROXY
from poolhouse.stack.paths import StackPaths

# Without the PVC protection controller, deleted PVCs would keep their finalizer and never disappear.
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "horizontal-pod-autoscaler-controller",
    "persistentvolumeclaim-protection-controller",
    "resourcequota-controller",
    "clusterrole-aggregation-controller",
    "serviceaccount-controller",
    "disruption-controller",
)
POD_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "ttl-after-finished-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-token-controller",
)
"""Controllers that concern Pods, which run only on a virtual node."""


def control_plane_components(
    programs: Programs, paths: StackPaths, ports: dict[str, int], *, pods: bool
) -> tuple[Component, ...]:
    """With `pods`, the control plane also creates, schedules and evicts Pods."""
    controllers = (*CONTROLLERS, *(POD_CONTROLLERS if pods else ()))
    scheduler = (_scheduler(programs, paths, ports),) if pods else ()
    return (
        etcd(programs, paths),
        _apiserver(programs, paths, ports),
        _manager(programs, paths, ports, controllers),
        *scheduler,
    )


def etcd(programs: Programs, paths: StackPaths) -> Component:
    """etcd uses neither TLS nor passwords here, so it listens on sockets in a directory that only its owner may enter.
    For `unix://HOST:PORT` etcd creates the socket `HOST:PORT` in its working directory."""
    sockets = paths.runtime / "etcd"
    return Component(
        "etcd",
        (
            programs.command("etcd"),
            f"--data-dir={paths.etcd}",
            "--name=default",
            "--listen-client-urls=unix://client:1",
            "--advertise-client-urls=unix://client:1",
            "--listen-peer-urls=unix://peer:1",
            "--initial-advertise-peer-urls=unix://peer:1",
            "--initial-cluster=default=unix://peer:1",
            # Writes are ten times as fast. The data survives a killed process, but not a crash of the machine.
            "--unsafe-no-fsync",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=30m",
            "--quota-backend-bytes=2147483648",
        ),
        cwd=sockets,
        ready=SocketProbe(sockets / "client:1"),
    )


def _apiserver(programs: Programs, paths: StackPaths, ports: dict[str, int]) -> Component:
    tls = paths.tls_of("cluster")
    port = ports["apiserver"]
    # The limits of priority levels are parts of this one. See `flow_control.for_one_machine`.
    requests_in_flight = 75 * len(os.sched_getaffinity(0))
    return Component(
        "kube-apiserver",
        (
            programs.command("kube-apiserver"),
            f"--etcd-servers=unix://{paths.runtime}/etcd/client:1",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={tls}",
            f"--tls-cert-file={tls}/apiserver.crt",
            f"--tls-private-key-file={tls}/apiserver.key",
            f"--token-auth-file={paths.tokens}",
            "--authorization-mode=RBAC",
            f"--max-requests-inflight={requests_in_flight}",
            # The API server adds both numbers.
            "--max-mutating-requests-inflight=0",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={tls}/accounts.key",
            f"--service-account-signing-key-file={tls}/accounts.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            # With a reconciler, the API server would retry without end to write loopback endpoints, which are invalid.
            "--endpoint-reconciler-type=none",
            *request_header_flags(tls),
            f"--client-ca-file={tls}/ca.crt",
            f"--kubelet-client-certificate={tls}/{KUBELET_CLIENT}.crt",
            f"--kubelet-client-key={tls}/{KUBELET_CLIENT}.key",
            f"--admission-control-config-file={paths.admission}",
        ),
        ready=HttpProbe(f"https://127.0.0.1:{port}/readyz", paths.ca),
        after=("etcd",),
        stop_seconds=20,
    )


ADMISSION_CONFIGURATION = "apiserver.config.k8s.io/v1"
WEBHOOK_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def write_admission_configuration(paths: StackPaths, ports: dict[str, int]) -> None:
    """Writes the files that make the API server show its client certificate to the webhook, and to no other one."""
    tls = paths.tls_of("cluster")
    user = {"client-certificate": f"{tls}/{WEBHOOK_CLIENT}.crt", "client-key": f"{tls}/{WEBHOOK_CLIENT}.key"}
    kubeconfig: Json = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": f"127.0.0.1:{ports['webhook']}", "user": user}],
    }
    users = paths.kubeconfig_of("webhook-clients")
    plugins = [
        {
            "name": name,
            "configuration": {
                "apiVersion": ADMISSION_CONFIGURATION,
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(users),
            },
        }
        for name in WEBHOOK_PLUGINS
    ]
    configuration = {"apiVersion": ADMISSION_CONFIGURATION, "kind": "AdmissionConfiguration", "plugins": plugins}
    # The API server reads JSON here, because JSON is YAML.
    write_atomically(users, json.dumps(kubeconfig).encode())
    write_atomically(paths.admission, json.dumps(configuration).encode())


def request_header_flags(tls: Path) -> tuple[str, ...]:
    """The front proxy certificate authenticates requests that the API server forwards to extension API servers."""
    return (
        f"--proxy-client-cert-file={tls}/proxy.crt",
        f"--proxy-client-key-file={tls}/proxy.key",
        f"--requestheader-client-ca-file={tls}/ca.crt",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    )


def _manager(programs: Programs, paths: StackPaths, ports: dict[str, int], controllers: tuple[str, ...]) -> Component:
    tls = paths.tls_of("cluster")
    return Component(
        "kube-controller-manager",
        (
            programs.command("kube-controller-manager"),
            f"--kubeconfig={paths.kubeconfig_of('kube-controller-manager')}",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports['kube-controller-manager']}",
            f"--tls-cert-file={tls}/apiserver.crt",
            f"--tls-private-key-file={tls}/apiserver.key",
            f"--service-account-private-key-file={tls}/accounts.key",
            "--use-service-account-credentials=false",
            "--leader-elect=false",
            f"--controllers={','.join(controllers)}",
            f"--root-ca-file={tls}/ca.crt",
            # Shorter than the default of 15 seconds, because users wait for the autoscaler.
            "--horizontal-pod-autoscaler-sync-period=5s",
            # The quota controller counts newly installed kinds only after this time; the default is 5 minutes.
            "--resource-quota-sync-period=10s",
            "--concurrent-gc-syncs=20",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ),
        ready=HttpProbe(f"https://127.0.0.1:{ports['kube-controller-manager']}/healthz", paths.ca),
        after=("kube-apiserver",),
    )


def _scheduler(programs: Programs, paths: StackPaths, ports: dict[str, int]) -> Component:
    tls = paths.tls_of("cluster")
    return Component(
        SCHEDULER,
        (
            programs.command(SCHEDULER),
            f"--kubeconfig={paths.kubeconfig_of(SCHEDULER)}",
            # It answers /healthz to everybody, and knows nobody who may ask for more.
            "--authentication-skip-lookup=true",
            "--bind-address=127.0.0.1",
            f"--secure-port={ports[SCHEDULER]}",
            f"--tls-cert-file={tls}/apiserver.crt",
            f"--tls-private-key-file={tls}/apiserver.key",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ),
        ready=HttpProbe(f"https://127.0.0.1:{ports[SCHEDULER]}/healthz", paths.ca),
        after=("kube-apiserver",),
    )
