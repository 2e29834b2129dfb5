"""The application in a simulated guest: which of its containers run at a time, and how they have ended."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from poolhouse.api.apimachinery.timestamps import format_time
from poolhouse.api.apimachinery.unstructured import Json


@dataclass(frozen=True)
class Application:
    uid: str
    """UID of the Pod that the agent has got"""
    spec: Json
    launched: datetime
    stopped: datetime | None = None
    """time at which the agent was asked to stop the application"""


@dataclass(frozen=True)
class Report:
    status: Json
    """the status of the Pod"""
    change_seconds: float | None = None
    """seconds until the application ends or restarts; None: never by itself"""


NOTHING = Report({})
"""the report of an agent that has got no application"""


def report(app: Application, run_seconds: float | None, exit_code: int, now: datetime) -> Report:
    """All containers start at once, run for `run_seconds`, end with the exit code, and restart without a pause if the
    restart policy says so. Init containers have ended when the containers start."""
    if app.stopped is not None:
        return Report(_ended(app, app.launched, app.stopped, 0, 0))
    if run_seconds is None:
        return Report(_running(app, app.launched, 0, None))
    run = timedelta(seconds=max(run_seconds, 0.1))
    runs = max(0, int((now - app.launched) / run))
    policy = app.spec.get("restartPolicy", "Always")
    if runs and (policy == "Never" or (policy == "OnFailure" and exit_code == 0)):
        return Report(_ended(app, app.launched, app.launched + run, exit_code, 0))
    began = app.launched + run * runs
    last = _terminated(began - run, began, exit_code) if runs else None
    return Report(_running(app, began, runs, last), ((began + run) - now).total_seconds())


def _running(app: Application, began: datetime, restarts: int, last: Json | None) -> Json:
    state = {"state": {"running": {"startedAt": format_time(began)}}, "ready": True, "started": True}
    if last is not None:
        state["lastState"] = last
    return _status(app, "Running", {**state, "restartCount": restarts})


def _ended(app: Application, began: datetime, ended: datetime, exit_code: int, restarts: int) -> Json:
    state = {"state": _terminated(began, ended, exit_code), "ready": False, "started": False}
    return _status(app, "Failed" if exit_code else "Succeeded", {**state, "restartCount": restarts})


def _status(app: Application, phase: str, container: Json) -> Json:
    launched = _terminated(app.launched, app.launched, 0)
    return {
        "phase": phase,
        "startTime": format_time(app.launched),
        "initContainerStatuses": [
            {"name": each["name"], "state": launched, "ready": True, "restartCount": 0}
            for each in app.spec.get("initContainers", ())
        ],
        "containerStatuses": [{"name": each["name"], **container} for each in app.spec.get("containers", ())],
    }


def _terminated(began: datetime, ended: datetime, exit_code: int) -> Json:
    reason = "Error" if exit_code else "Completed"
    times = {"startedAt": format_time(began), "finishedAt": format_time(ended)}
    return {"terminated": {"exitCode": exit_code, "reason": reason, **times}}
