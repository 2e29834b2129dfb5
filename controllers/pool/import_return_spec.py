"""The spec of KubeVirt's pool when an imported pool goes back."""

from controllers.pool.kubevirt_pools import Change, convert, is_named
from controllers.pool.pools import Pool
from controllers.pool.revision_content import content_hash
from poolhouse.api.apimachinery.label_selectors import matches
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import meta
from poolhouse.api.kinds.pool import PoolSpec

_CARRIED = ("replicas", "paused", "template")
"""The fields whose present values KubeVirt's pool gets."""


def kubevirt_spec(pool: Pool, target: Json, data: Json, drops: tuple[str, ...]) -> tuple[Json, list[Change], list[str]]:
    """The spec of KubeVirt's pool, how it differs from the kept one, and problems."""
    kept: Json = convert({"metadata": {}, "spec": data["spec"]}, data["drops"]).spec
    spec, changes, problems, dropped = dict(data["spec"]), list[Change](), list[str](), set[str]()
    before, now = PoolSpec.model_validate(kept).json(), pool.spec.json()
    for key in sorted((before.keys() | now.keys()) - set(_CARRIED)):
        if before.get(key) == now.get(key):
            continue
        named = {each for each in drops if is_named(f"spec.{key}", each)}
        dropped |= named
        if named:
            changes.append(Change(f"spec.{key}", now.get(key), "", None, "dropped: KubeVirt's pool gets the kept spec"))
        else:
            problems.append(
                f"spec.{key}: it has changed since the import, and KubeVirt's pool gets the kept spec; lose the change"
                f" with --drop {key}"
            )
    problems += [f"--drop {each}: no field of this name stops the way back" for each in drops if each not in dropped]
    returning = at(target, "metadata", "annotations", meta.RETURNING)
    paused = returning == "true" if returning else pool.spec.paused
    for key, after in (("replicas", pool.spec.replicas), ("paused", paused)):
        if kept.get(key, False) != after:
            changes.append(Change(f"spec.{key}", spec.get(key), f"spec.{key}", after, "as it is now"))
            spec[key] = after
    template: Json = target["spec"]["template"]
    if not same_template(kept["template"], template, pool):
        path = "spec.virtualMachineTemplate"
        changes.append(Change(path, "the template", path, "the present template", "it has changed since the import"))
        spec["virtualMachineTemplate"] = {key: template[key] for key in ("metadata", "spec") if template.get(key)}
    labels = at(spec, "virtualMachineTemplate", "metadata", "labels")
    if not matches(spec.get("selector"), labels):
        problems.append("spec.template.metadata.labels: the selector of KubeVirt's pool does not match them")
    return spec, changes, problems


def same_template(template: Json, other: Json, pool: Pool) -> bool:
    return content_hash({"template": template}, pool.namespace) == content_hash({"template": other}, pool.namespace)
