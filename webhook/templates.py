"""Checks the template of a pool, warm pool or replica set as the VM that the controller would create from it.

The user needs the right to create these VMs. Otherwise a pool could create VMs that the user must not create. A dry run
of one VM finds problems before the controller creates VMs, and reports them at their paths in the template.
"""

import asyncio
import re
from collections.abc import AsyncIterator

from poolhouse.api.apimachinery.problem import Problem
from poolhouse.api.apimachinery.unstructured import Json, at
from poolhouse.api.kinds import by_gvk
from poolhouse.api.kinds.kind import Template
from poolhouse.runtime.access_review import user_may
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import ApiError, Forbidden, NotFound, QuotaExceeded
from poolhouse.runtime.instancetypes import RESOURCES, InstancetypeReader
from poolhouse.runtime.resource import Resource
from webhook.api_errors import cause_of, problems_of
from webhook.patch import same
from webhook.review import AdmissionRequest, AdmissionResponse

_WEBHOOK_LACKS_RIGHT = re.compile(r' is forbidden: User "')
"""message of RBAC about a missing right of the requesting user, which is the webhook in a dry run"""


def changed_template(request: AdmissionRequest) -> Template | None:
    """The template that the request adds or changes."""
    kind = by_gvk(request.api_version, request.kind)
    for template in kind.templates if kind else ():
        given = at(request.object, *template.path)
        if isinstance(given, dict) and not same(given, at(request.old, *template.path)):
            return template
    return None


def vm_of(request: AdmissionRequest, template: Template) -> Json:
    """The VM of a template, with a name that the API server generates."""
    given = at(request.object, *template.path)
    metadata = {key: value for key in ("labels", "annotations") if (value := at(given, "metadata", key))}
    generated = {"generateName": f"{request.name or 'pool'}-", "namespace": request.namespace}
    return {
        "apiVersion": Resource.of(template.creates).api_version,
        "kind": template.creates.kind,
        "metadata": {**metadata, **generated},
        "spec": {**(given.get("spec") or {}), **template.adds},
    }


class TemplateReview:
    def __init__(self, api: Api, instancetypes: InstancetypeReader, *, budget_seconds: float) -> None:
        """`budget_seconds` must be below the webhook's timeout. It includes the admission of the VM."""
        self._api, self._instancetypes, self._budget_seconds = api, instancetypes, budget_seconds

    async def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Denies the request if the user's rights are unknown. Only warns if the dry run is not possible."""
        template = changed_template(request)
        if template is None:
            return AdmissionResponse()
        granted = False
        try:
            async with asyncio.timeout(self._budget_seconds):
                creates = Resource.of(template.creates)
                granted = await user_may(self._api, request.user, "create", creates, request.namespace)
                if not granted:
                    return _forbidden(request, template)
                return await self._dry_run(request, template) if template.dry_run else AdmissionResponse()
        except (ApiError, TimeoutError) as error:
            if granted:
                return AdmissionResponse(warnings=(f"the dry run of a VM of the template failed: {cause_of(error)}",))
            message = f"cannot determine whether you may create the VMs: {cause_of(error)}; try again"
            return AdmissionResponse(problems=(Problem("", message),), forbidden=True)

    async def _dry_run(self, request: AdmissionRequest, template: Template) -> AdmissionResponse:
        try:
            await self._api.create(Resource.of(template.creates), vm_of(request, template), dry_run=True)
        except (QuotaExceeded, NotFound) as error:
            # Only a warning: before the controller creates VMs, the quota may be raised or KubeVirt installed.
            return AdmissionResponse(warnings=(f"a VM of the template would be refused now: {error.message}",))
        except ApiError as error:
            problems = tuple(at_template(template, problem) for problem in problems_of(error))
            if not problems or (isinstance(error, Forbidden) and _WEBHOOK_LACKS_RIGHT.search(error.message)):
                raise
            return AdmissionResponse(problems=problems)
        return AdmissionResponse(warnings=tuple([each async for each in self._missing(request, template)]))

    async def _missing(self, request: AdmissionRequest, template: Template) -> AsyncIterator[str]:
        """Warnings about an instance type or a preference that cannot be read, if KubeVirt has not refused the VM."""
        vm = vm_of(request, template)
        for name in RESOURCES:
            # Without a name, KubeVirt infers it from a volume.
            if at(vm, "spec", name, "name"):
                only = {**vm, "spec": {name: vm["spec"][name]}}
                if unread := (await self._instancetypes.read(only, request.namespace)).get("unread"):
                    path = ".".join((*template.path, "spec", name, "name"))
                    yield f"{path}: {unread}; without it, VMs of the template do not start"


def at_template(template: Template, problem: Problem) -> Problem:
    """Converts the path of a VM's problem to the path in the pool."""
    return Problem(".".join((*template.path, problem.path) if problem.path else template.path), problem.message)


def _forbidden(request: AdmissionRequest, template: Template) -> AdmissionResponse:
    message = f"{request.username} may not create {template.creates.plural} in namespace {request.namespace}"
    return AdmissionResponse(problems=(Problem(".".join(template.path), message),), forbidden=True)
