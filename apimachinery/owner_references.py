"""Owner references: the controller of an object, and when the garbage collector deletes it."""

from apimachinery.unstructured import Json, at


def controller_reference(api_version: str, kind: str, name: str, uid: str) -> Json:
    """The reference that marks an object as controlled, as `metav1.NewControllerRef` writes it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(document: Json) -> Json | None:
    """The reference to the object's controller, as `metav1.GetControllerOf` finds it; None without one."""
    references = at(document, "metadata", "ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller"):
            return reference
    return None
