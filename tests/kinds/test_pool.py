"""Validation, warnings and normalization of pools."""

from __future__ import annotations

from typing import Any

import pytest

from poolhouse.api.kinds import POOL
from poolhouse.api.kinds.meta import NODE_GROUP_MAX_SIZE, NODE_GROUP_MIN_SIZE
from poolhouse.api.kinds.pool import PoolSpec
from poolhouse.api.kinds.pool_strategies import ScaleInProactive, UpdateProactive
from tests.kinds.documents import BY_HAND, EXAMPLE, GONE, INSTANCE, ORDERED, changed, machine, pool, read


def told(document: Any) -> dict[str, str]:
    return {problem.path: problem.message for problem in POOL.problems(document)}


DISKS = (*INSTANCE, "domain", "devices", "disks")
SELECTORS = "spec.scaleInStrategy.proactive.selectionPolicy.orderedPolicies"


def ordered(*policies: Any) -> dict[str, Any]:
    return pool(scaleInStrategy={"proactive": {"selectionPolicy": {"orderedPolicies": list(policies)}}})


def labelled(**selector: Any) -> dict[str, Any]:
    return ordered({"labelSelector": selector})


UPDATE = "spec.updateStrategy.proactive"
GOLDEN = {"metadata": {"name": "root"}, "spec": {"sourceRef": {"kind": "DataSource", "name": "debian"}, "storage": {}}}
SURGE = f"{UPDATE}.maxSurge"


def surging(maxSurge: Any = 1, replacePolicy: str | None = None, **spec: Any) -> dict[str, Any]:
    given = {"maxSurge": maxSurge, "replacePolicy": replacePolicy}
    update = {key: value for key, value in given.items() if value is not None}
    return pool(updateStrategy={"proactive": update}, **spec)


DISK_METADATA = ("spec", "template", "spec", "dataVolumeTemplates", 0, "metadata")
RIGHT = [
    pytest.param(surging("10%", "Never"), id="VMs above replicas"),
    pytest.param(surging(None, "Recreate"), id="disks that are replaced"),
    pytest.param(pool(), id="the smallest"),
    pytest.param(read(EXAMPLE), id="automatic updates, with disks kept", marks=pytest.mark.sentence("1.25")),
    pytest.param(
        read(BY_HAND.replace("replica:", "replicas:")), id="everything by hand", marks=pytest.mark.sentence("1.26")
    ),
    pytest.param(pool(replicas=0), id="an empty pool"),
    pytest.param(pool(replicas=2.0), id="JSON has no integers"),
    pytest.param(pool(maxUnavailable="100%"), id="all may be away"),
    pytest.param(pool(maxUnavailable=1000), id="more may be away than there are"),
    pytest.param(pool(autohealing={}), id="healing, as it comes"),
    pytest.param(pool(maxLifetimeSeconds=0), id="no lifetime"),
    pytest.param(pool(maxLifetimeSeconds=86_400), id="the shortest lifetime"),
    pytest.param(pool(failureDomains={"topologyKey": ""}), id="zones are ignored"),
    pytest.param(pool(failureDomains={"topologyKey": "example.com/rack"}), id="another failure domain"),
    pytest.param(
        pool(maintenanceWindows=[{"schedule": "0 2 * * SAT", "durationSeconds": 3600, "timeZone": "Europe/Berlin"}]),
        id="a maintenance window",
    ),
    pytest.param(
        pool(lifecycleHooks=[{"name": "a", "transition": "Restarting"}, {"name": "b", "transition": "Terminating"}]),
        id="lifecycle hooks",
    ),
    pytest.param(pool(updateStrategy={}), id="no strategy chosen is the default one"),
    pytest.param(pool(updateStrategy={"opportunistic": {}}), id="halted VMs only"),
    pytest.param(labelled(), id="an empty selector selects everything"),
    pytest.param(labelled(matchExpressions=[{"key": "a/b", "operator": "Exists"}]), id="a label that is there"),
    pytest.param(pool("a" * 61), id="the longest name"),
    pytest.param(pool(template={"spec": machine(runStrategy="Always", running=None)}), id="null is absent"),
    pytest.param(
        changed(pool(), {"future": [1]}, *INSTANCE, "domain", "devices", "new"), id="a newer KubeVirt's field"
    ),
]


@pytest.mark.parametrize("document", RIGHT)
def test_a_valid_pool_has_no_problems(document: dict[str, Any]) -> None:
    assert told(POOL.normalize(document)) == {}


WRONG = [
    pytest.param(
        read(BY_HAND),
        {"spec.replica": 'use "replicas"'},
        id="the document's `replica`",
        marks=pytest.mark.sentence("1.26"),
    ),
    pytest.param(
        read(ORDERED),
        {f"{SELECTORS}[0]": "matchLabels"},
        id="the document's selector that is none",
        marks=pytest.mark.sentence("1.27"),
    ),
    pytest.param(
        changed(pool(), GONE, "spec", "replicas"),
        {"spec.replicas": "is missing"},
        id="no replicas",
        marks=pytest.mark.sentence("1.6"),
    ),
    pytest.param(
        changed(pool(), GONE, "spec", "template"),
        {"spec.template": "is missing"},
        id="no template",
        marks=pytest.mark.sentence("1.5"),
    ),
    pytest.param(pool(replicas=-1), {"spec.replicas": "at least 0, not -1"}, id="fewer than none"),
    pytest.param(pool(replicas=2**31), {"spec.replicas": "at most 2147483647"}, id="more than int32"),
    pytest.param(pool(replicas="3"), {"spec.replicas": "remove the quotes"}, id="a quoted number"),
    pytest.param(pool(replicas=True), {"spec.replicas": "whole number, not true"}, id="true is no number"),
    pytest.param(pool(replicas=2.5), {"spec.replicas": "not 2.5"}, id="half a VM", marks=pytest.mark.sentence("1.6")),
    pytest.param(pool(replicas=float("nan")), {"spec.replicas": "whole number"}, id="not a number"),
    pytest.param(pool(maxUnavailable=0), {"spec.maxUnavailable": "at least 1"}, id="none may be away"),
    pytest.param(pool(maxUnavailable="25"), {"spec.maxUnavailable": "percentage"}, id="a percentage without percent"),
    pytest.param(pool(maxUnavailable="0%"), {"spec.maxUnavailable": "percentage"}, id="no percent"),
    pytest.param(pool(maxUnavailable="101%"), {"spec.maxUnavailable": "percentage"}, id="more than all"),
    pytest.param(pool(maxUnavailable="25%\n"), {"spec.maxUnavailable": "percentage"}, id="a line break at the end"),
    pytest.param(pool(maxUnavailable=["1"]), {"spec.maxUnavailable": "not a list"}, id="a list of numbers"),
    pytest.param(
        changed(pool(), {"finalizers": ["a/b"], "ownerReferences": [{"uid": "x"}]}, "spec", "template", "metadata"),
        {
            "spec.template.metadata.finalizers": "is not for a template",
            "spec.template.metadata.ownerReferences": "is not for a template",
        },
        id="finalizers and owners of each VM",
    ),
    pytest.param(
        changed(pool(), {"namespace": "kube-system"}, "spec", "template", "spec", "template", "metadata"),
        {"spec.template.spec.template.metadata.namespace": 'in the namespace of this object, "default"'},
        id="VMs of another namespace",
    ),
    pytest.param(
        changed(pool(), "kube-system", *DISK_METADATA, "namespace"),
        {"spec.template.spec.dataVolumeTemplates[0].metadata.namespace": 'in the namespace of this object, "default"'},
        id="a disk of another namespace",
    ),
    pytest.param(
        changed(pool(), [{"name": "root", "persistentVolumeClaim": {"claimName": "../x"}}], *INSTANCE, "volumes"),
        {"spec.template.spec.template.spec.volumes[0].persistentVolumeClaim.claimName": 'not "../x"'},
        id="a claim that cannot exist",
    ),
    pytest.param(
        changed(pool(), [{"name": "root", "containerDisk": {"image": "\n"}}], *INSTANCE, "volumes"),
        {"spec.template.spec.template.spec.volumes[0].containerDisk.image": "without spaces"},
        id="an image that cannot exist",
    ),
    pytest.param(
        changed(pool(), [{"name": "root", "secret": {"secretName": "a b"}}], *INSTANCE, "volumes"),
        {"spec.template.spec.template.spec.volumes[0].secret.secretName": 'not "a b"'},
        id="a Secret that cannot exist",
    ),
    pytest.param(
        pool(updateStrategy={"proactive": {}, "unmanaged": {}}),
        {"spec.updateStrategy": "only one update strategy"},
        id="two update strategies",
    ),
    pytest.param(
        pool(scaleInStrategy={"opportunistic": {}, "unmanaged": {}}),
        {"spec.scaleInStrategy": "only one scale-in strategy"},
        id="two scale-in strategies",
    ),
    pytest.param(
        pool(scaleInStrategy={"opportunistic": {"statePreservation": "Online"}}),
        {"spec.scaleInStrategy.opportunistic.statePreservation": "memory"},
        id="memory cannot be kept",
        marks=pytest.mark.sentence("1.20"),
    ),
    pytest.param(
        pool(updateStrategy={"opportunistic": {"statePreservation": "Offline"}}),
        {"spec.updateStrategy.opportunistic.statePreservation": "is not a field here"},
        id="an update keeps its disks anyway",
    ),
    pytest.param(
        pool(scaleInStrategy={"proactive": {"selectionPolicy": {"basePolicy": "oldest"}}}),
        {"spec.scaleInStrategy.proactive.selectionPolicy.basePolicy": 'did you mean "Oldest"'},
        id="a policy in lower case",
        marks=pytest.mark.sentence("1.14"),
    ),
    pytest.param(
        labelled(matchLabels={"tier": 8}),
        {f"{SELECTORS}[0].labelSelector.matchLabels.tier": 'write it in quotes, "8"'},
        id="a number, which may have been written 010",
    ),
    pytest.param(
        ordered({"matchLabels": {"a": "b"}}),
        {f"{SELECTORS}[0].matchLabels": "inside labelSelector", f"{SELECTORS}[0].labelSelector": "is missing"},
        id="a selector not wrapped",
    ),
    pytest.param(
        labelled(matchLabels={"a b": "c"}),
        {f'{SELECTORS}[0].labelSelector.matchLabels["a b"]': "not a label key"},
        id="no label key",
    ),
    pytest.param(
        labelled(
            matchExpressions=[{"key": "a", "operator": "In"}, {"key": "b", "operator": "Exists", "values": ["c"]}]
        ),
        {
            f"{SELECTORS}[0].labelSelector.matchExpressions[0].values": "at least one",
            f"{SELECTORS}[0].labelSelector.matchExpressions[1].values": "left out",
        },
        id="operators and their values",
    ),
    pytest.param(pool(maxLifetimeSeconds=86_399), {"spec.maxLifetimeSeconds": "a day"}, id="a lifetime below a day"),
    pytest.param(
        pool(maxLifetimeSeconds=365 * 86_400 + 1), {"spec.maxLifetimeSeconds": "at most"}, id="a lifetime above a year"
    ),
    pytest.param(
        pool(
            maintenanceWindows=[
                {"schedule": "0 2 30 2 *", "durationSeconds": 59},
                {"cron": "0 2 * * 6", "durationSeconds": 60, "timeZone": "Berlin"},
                {"schedule": "nightly", "durationSeconds": 604_801},
            ],
            failureDomains={"topologyKey": "a zone"},
        ),
        {
            "spec.maintenanceWindows[0].schedule": "cron",
            "spec.maintenanceWindows[0].durationSeconds": "at least 60",
            "spec.maintenanceWindows[1].cron": 'use "schedule"',
            "spec.maintenanceWindows[1].timeZone": "Europe/Berlin",
            "spec.maintenanceWindows[2].schedule": "1 fields",
            "spec.maintenanceWindows[2].durationSeconds": "at most 604800",
            "spec.failureDomains.topologyKey": "must be the key of a label",
        },
        id="maintenance windows that never open, and a zone that is no label",
    ),
    pytest.param(
        pool(
            lifecycleHooks=[
                {"name": "Drain", "transition": "Terminating", "timeoutSeconds": 29},
                {"name": "a", "lifecycleTransition": "Terminating", "defaultResult": "CONTINUE"},
                {"name": "a", "transition": "Terminate"},
            ]
        ),
        {
            "spec.lifecycleHooks[0].name": "lowercase",
            "spec.lifecycleHooks[0].timeoutSeconds": "at least 30",
            "spec.lifecycleHooks[1].lifecycleTransition": 'use "transition"',
            "spec.lifecycleHooks[1].defaultResult": 'did you mean "Continue"?',
            "spec.lifecycleHooks[2].transition": 'did you mean "Terminating"?',
            "spec.lifecycleHooks[2].name": "each must be different",
        },
        id="lifecycle hooks as Auto Scaling groups spell them",
    ),
    pytest.param(
        pool(autohealing={"startUpFailureThreshold": 0}),
        {"spec.autohealing.startUpFailureThreshold": 'use "startupFailureThreshold"'},
        id="KubeVirt's spelling",
    ),
    pytest.param(
        pool(virtualMachineTemplate={}, selector={}),
        {"spec.virtualMachineTemplate": 'use "template"', "spec.selector": "leave the selector out"},
        id="KubeVirt's own pool",
    ),
    pytest.param(surging(replacePolicy="Recreate"), {SURGE: "keeps their names"}, id="more VMs, and the same names"),
    pytest.param(
        surging(scaleInStrategy={"opportunistic": {}}),
        {SURGE: "use scaleInStrategy.proactive"},
        id="VMs that must stay",
    ),
    pytest.param(
        surging(scaleInStrategy={"proactive": {"statePreservation": "Offline"}}),
        {SURGE: "would get old disks"},
        id="more VMs, and disks that return",
    ),
    pytest.param(
        surging(nameGeneration={"appendPostfixToSecretReferences": True}),
        {SURGE: "Secrets of their own"},
        id="more VMs, and a Secret for each",
    ),
    pytest.param(
        pool(updateStrategy={"proactive": {"maxSurge": 1, "snapshotBeforeUpdate": True}}),
        {SURGE: "needs no snapshot"},
        id="a snapshot of a VM that goes",
    ),
    pytest.param(surging(maxSurge=0), {SURGE: "at least 1"}, id="no VM more"),
    pytest.param(surging(maxSurge=None, replacePolicy="Always"), {f"{UPDATE}.replacePolicy": "Never"}, id="no policy"),
    pytest.param(
        pool(
            updateStrategy={"proactive": {"replacePolicy": "Recreate"}},
            template={"spec": machine(updateVolumesStrategy="Migration")},
        ),
        {"spec.template.spec.updateVolumesStrategy": "copies the old disk"},
        id="new disks with the content of the old ones",
    ),
    pytest.param(pool("a.b"), {"metadata.name": "no dots"}, id="a name with a dot"),
    *(
        pytest.param(
            changed(pool(), namespace, "metadata", "namespace"),
            {"metadata.namespace": "must be the name of a namespace"},
            id=f"the namespace {namespace}",
        )
        for namespace in ({"a": "b"}, "../x", 3)
    ),
    pytest.param(pool("a" * 62), {"metadata.name": "63"}, id="no room for -1"),
    pytest.param(pool("a" * 60, replicas=100), {"metadata.name": "63"}, id="no room for -100"),
    pytest.param(
        pool(template={"spec": machine(runStrategy="Always")}),
        {"spec.template.spec": "exactly one of running and runStrategy"},
        id="both ways to run",
    ),
    pytest.param(
        changed(pool(), GONE, "spec", "template", "spec", "running"),
        {"spec.template.spec": "exactly one of running and runStrategy"},
        id="no way to run",
    ),
    pytest.param(
        pool(template={"spec": machine(runStrategy="always", running=None)}),
        {"spec.template.spec.runStrategy": 'did you mean "Always"'},
        id="an unknown way to run",
    ),
    pytest.param(
        changed(pool(), [], "spec", "template", "spec", "dataVolumeTemplates"),
        {"spec.template.spec.template.spec.volumes[0].dataVolume.name": 'no dataVolumeTemplate "root"'},
        id="a volume from no template",
    ),
    pytest.param(
        changed(pool(), [], *INSTANCE, "volumes"),
        {"spec.template.spec.template.spec.domain.devices.disks[0].name": 'no volume "root"'},
        id="a disk without a volume",
    ),
    pytest.param(
        changed(pool(), [{"name": "root"}, {"name": "root"}], *DISKS),
        {"spec.template.spec.template.spec.domain.devices.disks[1].name": "is taken by"},
        id="two disks of one name",
    ),
    pytest.param(
        changed(pool(), [], *INSTANCE, "networks"),
        {"spec.template.spec.template.spec.domain.devices.interfaces[0].name": 'no network "default"'},
        id="an interface to nowhere",
    ),
    pytest.param(
        changed(pool(), {"labels": {"poolhouse.dev/pool": "other"}}, "spec", "template", "metadata"),
        {'spec.template.metadata.labels["poolhouse.dev/pool"]': "written by Poolhouse"},
        id="a label that says whose VM it is",
    ),
    pytest.param(
        changed(pool(), {"labels": {"important": True}}, "spec", "template", "metadata"),
        {"spec.template.metadata.labels.important": 'write it in quotes, "true"'},
        id="a label that YAML takes for a boolean",
    ),
    pytest.param(pool(replicas=None), {"spec.replicas": "is missing"}, id="null replicas"),
    pytest.param({**pool(), "spec": None}, {"spec": "is null"}, id="nothing wanted"),
    pytest.param({**pool(), "specs": {}}, {"specs": "is not a field here"}, id="an unknown field beside spec"),
    pytest.param({**pool(), "metadata": {}}, {"metadata.name": "is missing"}, id="no name"),
    pytest.param(
        {**pool(), "metadata": {"name": False}},
        {"metadata.name": "must be text, not false; write it in quotes"},
        id="a name that YAML reads as false",
    ),
    pytest.param(
        {**pool(), "apiVersion": "pool.kubevirt.io/v1beta1"}, {"apiVersion": "kubevirt.io/v1"}, id="another pool"
    ),
]


@pytest.mark.parametrize(("document", "expected"), WRONG)
def test_an_invalid_pool_has_problems_with_paths(document: dict[str, Any], expected: dict[str, str]) -> None:
    found = told(POOL.normalize(document))
    assert found.keys() == expected.keys()
    for path, words in expected.items():
        assert words in found[path]


def test_all_problems_are_reported_at_once() -> None:
    document = pool(
        replicas="three",
        maxUnavailable="half",
        updateStrategy={"proactive": {}, "unmanaged": {}},
        scaleInStrategy={"proactive": {"statePreservation": "Online"}},
        autohealing={"startupFailureThreshold": 0},
        template={"spec": machine(runStrategy="Always")},
        pausd=True,
    )
    assert sorted(told(document)) == [
        "spec.autohealing.startupFailureThreshold",
        "spec.maxUnavailable",
        "spec.pausd",
        "spec.replicas",
        "spec.scaleInStrategy.proactive.statePreservation",
        "spec.template.spec",
        "spec.updateStrategy",
    ]


DISK = (*INSTANCE, "domain", "devices", "disks", 0)

CAUTIONS = [
    pytest.param(pool(), [], id="nothing to say"),
    pytest.param(
        pool(scaleInStrategy={"proactive": {"statePreservation": "Offline"}}, template={"spec": {}}),
        ["the template has none"],
        id="nothing to preserve",
    ),
    pytest.param(
        changed(pool(), "52:54:00:00:00:01", *INSTANCE, "domain", "devices", "interfaces", 0, "macAddress"),
        ["the same MAC address"],
        id="one MAC address for all",
    ),
    pytest.param(
        changed(pool(), {"uuid": "u", "serial": "s"}, *INSTANCE, "domain", "firmware"),
        ["the same firmware uuid", "the same firmware serial"],
        id="one firmware for all",
    ),
    pytest.param(
        changed(pool(), [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}], *INSTANCE, "volumes"),
        ["the same claim"],
        id="one claim for all",
    ),
    pytest.param(
        changed(
            changed(
                pool(), [{"metadata": {"name": "c"}, "spec": {}}], "spec", "template", "spec", "dataVolumeTemplates"
            ),
            [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}],
            *INSTANCE,
            "volumes",
        ),
        [],
        id="the claim of a disk that each VM has of its own",
    ),
    pytest.param(changed(pool(), {"name": "x"}, "spec", "template", "metadata"), ["not used"], id="a name for all"),
    pytest.param(
        changed(changed(pool(), {}, *INSTANCE, "domain", "cpuu"), "sata", *DISK, "disk", "buss"),
        [
            "spec.template.spec.template.spec.domain.devices.disks[0].disk.buss: KubeVirt has no such field, and"
            ' ignores it; did you mean "bus"?',
            "spec.template.spec.template.spec.domain.cpuu: KubeVirt has no such field, and ignores it; did you mean"
            ' "cpu"?',
        ],
        id="fields that KubeVirt does not have",
    ),
    pytest.param(
        changed(
            surging(None, "Recreate", template={"spec": machine(dataVolumeTemplates=[])}), [], *INSTANCE, "volumes"
        ),
        [f"{UPDATE}.replacePolicy: Recreate gives VMs new disks"],
        id="no disks to replace",
    ),
    pytest.param(
        pool(updateStrategy={"proactive": {"trackDataSources": True}}),
        [f"{UPDATE}.trackDataSources: no entry of dataVolumeTemplates has a sourceRef"],
        id="no DataSource to track",
    ),
    pytest.param(
        pool(
            updateStrategy={"proactive": {"trackDataSources": True}},
            template={"spec": machine(dataVolumeTemplates=[GOLDEN])},
        ),
        ["only new VMs get a new image"],
        id="a new image that reaches no VM",
    ),
    pytest.param(
        changed(pool(), {"uid": "x", "resourceVersion": "7"}, "spec", "template", "metadata"),
        ["spec.template.metadata.uid is not used", "spec.template.metadata.resourceVersion is not used"],
        id="metadata of another object",
    ),
    pytest.param(
        changed(pool(), {NODE_GROUP_MIN_SIZE: "0", NODE_GROUP_MAX_SIZE: "5"}, "metadata", "annotations"),
        ["no node group of the cluster-autoscaler: the annotation poolhouse.dev/node-group-min-size must be a number"],
        id="a node group that may become empty",
    ),
]


@pytest.mark.parametrize(("document", "expected"), CAUTIONS)
def test_warnings_about_likely_mistakes(document: dict[str, Any], expected: list[str]) -> None:
    found = POOL.warnings(document)
    assert len(found) == len(expected)
    for warning, words in zip(found, expected, strict=True):
        assert words in warning


def test_booleans_in_selectors_become_text() -> None:
    found = POOL.normalize(labelled(matchLabels={"spare": True, "os": "linux"}))
    assert found == labelled(matchLabels={"spare": "true", "os": "linux"})


def test_a_normal_document_is_returned_unchanged() -> None:
    document = pool(scaleInStrategy={"proactive": {"selectionPolicy": {"orderedPolicies": [{"labelSelector": {}}]}}})
    assert POOL.normalize(document) is document


def test_nulls_are_removed_from_optional_fields() -> None:
    found = POOL.normalize(pool(paused=None, autohealing=None, updateStrategy={"proactive": None}, replicas=None))
    assert found == pool(updateStrategy={}, replicas=None)


@pytest.mark.sentence("1.8", "1.10", "1.13", "1.15", "1.18", "1.21", "1.22")
def test_defaults() -> None:
    spec = PoolSpec.model_validate(pool()["spec"])
    assert spec.max_unavailable == "25%"
    assert spec.autohealing is None
    assert not spec.paused
    update, scale_in = spec.update_strategy.chosen, spec.scale_in_strategy.chosen
    assert isinstance(update, UpdateProactive)
    assert update.selection_policy.base_policy == "Random"
    assert isinstance(scale_in, ScaleInProactive)
    assert scale_in.state_preservation == "Disabled"
    healing = PoolSpec.model_validate(pool(autohealing={})["spec"]).autohealing
    assert healing.startup_failure_threshold == 3


def test_a_template_stays_a_dict() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": machine(), "unknown": [None]}
    assert PoolSpec.model_validate(pool(template=template)["spec"]).template == template
