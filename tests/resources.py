"""Resources of the Kubernetes API that only tests read and write."""

from __future__ import annotations

from poolhouse.runtime.resource import Resource

SERVICES = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")

# Of KubeVirt's virt-api
VM_REQUESTS = Resource("subresources.kubevirt.io", "v1", "virtualmachines", "")

_RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")

_ADMISSION = "admissionregistration.k8s.io"
ADMISSION_POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
ADMISSION_POLICY_BINDINGS = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
