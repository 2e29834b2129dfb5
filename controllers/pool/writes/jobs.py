"""Writes of analyses."""

import copy
from contextlib import suppress

from controllers.pool.actions import RunJob
from controllers.pool.pools import Pool
from controllers.pool.template import owner_reference
from controllers.pool.writes.context import Writing
from controllers.shared.sources import CRON_JOBS, JOBS
from poolhouse.api.apimachinery.unstructured import Json
from poolhouse.api.kinds import meta
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import AlreadyExists, Forbidden, NotFound

JOBS_ARE_OFF = "the operator of Poolhouse allows Jobs of analyses with the chart's value controllers.analysis.jobs"


async def run(to: Writing, a: RunJob) -> None:
    await run_job(to.api, to.owner, a)


async def run_job(api: Api, pool: Pool, a: RunJob) -> None:
    """Creates the Job. Raises Forbidden if the author of the CronJob has not allowed it, or if the CronJob is missing.

    A user who may change pools needs no right to create Jobs, so the CronJob must allow it by its label."""
    try:
        cron_job = await api.get(CRON_JOBS, pool.namespace, a.cron_job)
    except NotFound as error:
        raise Forbidden(f"CronJob {a.cron_job} does not exist in namespace {pool.namespace}", status=404) from error
    except Forbidden as error:
        raise Forbidden(f"{error.message}; {JOBS_ARE_OFF}", status=403) from error
    if (cron_job["metadata"].get("labels") or {}).get(meta.POOL_ANALYSIS) != "true":
        label = f'{meta.POOL_ANALYSIS}: "true"'
        raise Forbidden(f"CronJob {a.cron_job} lacks the label {label}, which allows pools to run it", status=403)
    with suppress(AlreadyExists):
        await api.create(JOBS, build_job(pool, cron_job, a))


JOB_TTL_SECONDS = 86400
"""Time for which a Job of an analysis stays after its end, if its CronJob says nothing else."""


def build_job(pool: Pool, cron_job: Json, a: RunJob) -> Json:
    """The Job of an analysis. Its Pods have the names of the pool and of the revision as annotations."""
    template = copy.deepcopy(cron_job["spec"]["jobTemplate"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    about = {meta.ANALYSED_POOL: pool.name, meta.ANALYSED_REVISION: a.revision}
    inner = spec["template"].setdefault("metadata", {})
    inner["annotations"] = {**(inner.get("annotations") or {}), **about}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": pool.namespace,
            "name": a.name,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), **about},
            "ownerReferences": [owner_reference(pool)],
        },
        "spec": {"ttlSecondsAfterFinished": JOB_TTL_SECONDS, **spec},
    }
