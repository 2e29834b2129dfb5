"""CDI's admission of DataVolumes, as policies of the API server.

CDI's mutating webhook asks at each write of a clone whether the writer may `create datavolumes/source` in the source's
namespace, changes of metadata included. It does not ask about a DataVolume that is being deleted or is marked as
populated (Admit in pkg/apiserver/webhooks/datavolume-mutate.go and AuthorizeUser in authorize.go of CDI 1.66). CDI also
follows DataSources; that needs a look at the cluster and is left out.
"""

from poolhouse.api.apimachinery.unstructured import Json

POLICY_NAME = "cdi-datavolume-clones"
_MARKS = ("cdi.kubevirt.io/storage.prePopulated", "cdi.kubevirt.io/storage.checkStaticVolume")

_SOURCE_NAMESPACE = (
    "object.?spec.?source.?pvc.?namespace.orValue("
    "object.?spec.?source.?snapshot.?namespace.orValue(object.metadata.namespace))"
)
_MAY_CLONE = (
    "authorizer.group('cdi.kubevirt.io').resource('datavolumes').subresource('source')"
    ".namespace(variables.source).check('create').allowed()"
)
_IS_MARKED = " || ".join(f"object.?metadata.?annotations[?'{mark}'].hasValue()" for mark in _MARKS)


def policies() -> list[Json]:
    """The policy and its binding."""
    rule = {
        "apiGroups": ["cdi.kubevirt.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["datavolumes"],
    }
    group = "admissionregistration.k8s.io/v1"
    policy = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY_NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [
                {"name": "not-deleted", "expression": "!object.?metadata.?deletionTimestamp.hasValue()"},
                {"name": "not-populated", "expression": f"!({_IS_MARKED})"},
            ],
            "variables": [{"name": "source", "expression": _SOURCE_NAMESPACE}],
            "validations": [
                {
                    "expression": f"variables.source == object.metadata.namespace || {_MAY_CLONE}",
                    "messageExpression": "'User ' + request.userInfo.username"
                    " + ' has insufficient permissions in clone source namespace ' + variables.source",
                }
            ],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY_NAME},
        "spec": {"policyName": POLICY_NAME, "validationActions": ["Deny"]},
    }
    return [policy, binding]
