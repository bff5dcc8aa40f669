"""The probes of load balancers and orchestrators: is the process alive, and can the installation do its work?

They are open to anyone, so that the answers say no more than that; what is down is in the log and the metrics.
"""

from __future__ import annotations

import logging
import threading
import time

from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, JsonResponse
from django.utils.log import log_response
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_q.brokers import get_broker

from runs.models import Worker

CHECK_TIMEOUT = 2.0
"""Seconds that a probe waits for a check that is under way."""
FRESH_SECONDS = 1.0
"""Seconds for which the result of a check is used again, so that many probes cost no more than one."""

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def show_alive(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers; it checks nothing else, since a restart would fix nothing else."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def show_ready(request: HttpRequest) -> JsonResponse:
    """200 if the database and the broker answer and a worker had a recent heartbeat, else 503."""
    if readiness.check():
        return JsonResponse({"status": "ok"})
    response = JsonResponse({"status": "unavailable"}, status=503)
    # Else each probe would be an error in the log; what is down is logged once, by the check.
    log_response("Not ready.", response=response, request=request, logger=logger, level="debug")
    return response


class Readiness:
    """The last result of the check, which one thread at a time makes: the others don't wait for one that hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checked_at = float("-inf")
        self._problem = ""

    def check(self) -> bool:
        """Whether the installation is ready."""
        if not self._lock.acquire(timeout=CHECK_TIMEOUT):
            return False
        try:
            if time.monotonic() - self._checked_at >= FRESH_SECONDS:
                problem = load_problem()
                if problem and problem != self._problem:
                    logger.warning("Not ready: %s", problem)
                elif self._problem and not problem:
                    logger.warning("Ready again.")
                self._problem, self._checked_at = problem, time.monotonic()
            return not self._problem
        finally:
            self._lock.release()


def load_problem() -> str:
    """What keeps runs from being executed, in a sentence; empty if nothing does."""
    try:
        has_worker = Worker.objects.alive().exists()
    except (DatabaseError, InterfaceError) as error:
        return f"the database is down. ({' '.join(str(error).split())})"
    if problem := find_broker_problem():
        return f"the broker is down. ({problem})"
    return "" if has_worker else "no worker had a heartbeat recently."


def find_broker_problem() -> str:
    """Why the queue's broker does not answer; empty if it does. A Redis that hangs takes its socket timeout."""
    try:
        get_broker().queue_size()
    except Exception as error:  # noqa: BLE001  # brokers have exceptions of their own
        return " ".join(str(error).split()) or type(error).__name__
    return ""


readiness = Readiness()
