"""Builds and reads owner references."""

from poolhouse.api.apimachinery.unstructured import Json, at


def controller_reference(api_version: str, kind: str, name: str, uid: str) -> Json:
    """An owner reference to the controller of an object, like that of `metav1.NewControllerRef`."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(document: Json) -> Json | None:
    """The owner reference to the object's controller, like `metav1.GetControllerOf`; None without controller."""
    references = at(document, "metadata", "ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller"):
            return reference
    return None


def controlling_pod(document: Json) -> Json | None:
    """The owner reference to the Pod that is the object's controller; None if its controller is no Pod."""
    owner = controller_of(document) or {}
    return owner if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod") else None
