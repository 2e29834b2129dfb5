"""The settings of Argo CD: a script that tells it the health of each kind, and the fields that are not in Git.

Argo CD runs the script with the object in `obj`, in Lua 5.1. It reads the conditions that kstatus reads, and tells
an object that waits for a user or a time from one that the controllers work on.
"""

from collections.abc import Iterable

from poolhouse.api.kinds import KINDS
from poolhouse.api.kinds.kind import Kind

SCRIPT = """\
local status = obj.status or {}
if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the controllers have not observed the last change yet"}
end
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
local function health(word, condition)
  local reason, message = condition.reason or "", condition.message or ""
  return {status = word, message = message == "" and reason or reason .. ": " .. message}
end
if found.Stalled ~= nil and found.Stalled.status == "True" then
  return health("Degraded", found.Stalled)
end
if found.Reconciling ~= nil and found.Reconciling.status == "True" then
  return health("Progressing", found.Reconciling)
end
if found.Ready == nil then
  return {status = "Healthy", message = status.phase or ""}
end
return health(found.Ready.status == "True" and "Healthy" or "Suspended", found.Ready)
"""

NOTE = """\
# Health scripts for Argo CD, generated from the kinds. Argo CD reads them from its ConfigMap argocd-cm:
#   kubectl patch configmap argocd-cm --namespace argocd --patch-file examples/argocd/health.yaml
"""


def health_patch(kinds: Iterable[Kind] = KINDS) -> str:
    """A patch of Argo CD's ConfigMap `argocd-cm`, as YAML with literal blocks."""
    script = "".join(f"    {line}\n" for line in SCRIPT.splitlines())
    names = (f"  resource.customizations.health.{kind.group}_{kind.kind}: |\n{script}" for kind in kinds)
    return f"{NOTE}data:\n{''.join(names)}"
