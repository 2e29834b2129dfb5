"""Prints what the rooms make of the kind that test_new_kind.py adds. It runs in a process of its own."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

from poolhouse.api.kinds import by_gvk, disabled_kinds
from poolhouse.cli.overview import object_row
from poolhouse.cli.parameters import parse_name, qualified_name
from poolhouse.cli.plan import planned_kinds
from poolhouse.generate.from_kinds import generated
from poolhouse.manifests import rbac, webhooks
from tests.kinds.documents import machine
from tests.webhook.builders import request
from webhook.admission import Admission
from webhook.defaulting import NoDefaulter
from webhook.templates import changed_template


def main() -> None:
    spec = {"replicas": 3, "template": {"spec": machine()}}
    fleet = {
        "apiVersion": "poolhouse.dev/v1alpha1",
        "kind": "Fleet",
        "metadata": {"name": "north", "namespace": "a", "generation": 1},
        "spec": spec,
        "status": {"observedGeneration": 1, "phase": "AtSea", "readyReplicas": 2},
    }
    wrong = {**fleet, "spec": {**spec, "harbor": "lost", "sails": 2}}
    admission = Admission(defaulting=NoDefaulter(), checks=())
    kind = by_gvk("poolhouse.dev/v1alpha1", "Fleet")
    template = changed_template(request(fleet))
    assert kind is not None
    assert template is not None
    print(
        json.dumps(
            {
                "files": {str(path): text for path, text in generated().items()},
                "rules": {service: [rule.rule() for rule in rules] for service, rules in rbac.CLUSTER_RULES.items()},
                "roles": rbac.user_roles(),
                "webhooks": webhooks.configurations(service=webhooks.Service(), ca_bundle=b""),
                "right": [str(each) for each in asyncio.run(admission.mutate(request(fleet))).problems],
                "wrong": [str(each) for each in asyncio.run(admission.mutate(request(wrong))).problems],
                "creates": template.creates.plural,
                "row": object_row(kind, fleet, datetime.now(UTC)),
                "names": [qualified_name("Fleet", "north"), parse_name("flt/north", "Fleet")],
                "planned": [each.kind for each in planned_kinds()],
                "off": sorted(disabled_kinds({"POOLHOUSE_KINDS_OFF": "fleets"})),
            }
        )
    )


if __name__ == "__main__":
    main()
