"""What load balancers and orchestrators ask: is the process alive, and can the installation do its work?

Anybody may ask: the answers say that, and nothing else; which part is away is for the log and the metrics. They need no
session, and are for nobody's cache.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for

from django.db import connections
from django.http import HttpRequest, JsonResponse
from django.utils.log import log_response
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django_q.brokers import get_broker

from runs.models import Worker

PATIENCE = 2.0
"""Seconds that the parts have to answer."""
FRESH = 1.0
"""Seconds for which an answer is given again: whoever asks more often costs nothing more."""

logger = logging.getLogger(__name__)


@require_safe
@never_cache
def show_alive(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers. Looks at nothing else: starting it anew would mend nothing else."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def show_ready(request: HttpRequest) -> JsonResponse:
    """200 if the database and the broker answer and a worker was heard of lately, else 503."""
    is_ready = all(readiness.read().values())
    response = JsonResponse({"status": "ok" if is_ready else "unavailable"}, status=200 if is_ready else 503)
    if not is_ready:
        # Else each probe would be an error in the log, every few seconds. What is away is told once, below.
        log_response("Not ready.", response=response, request=request, logger=logger, level="debug")
    return response


def look_at_database() -> bool:
    """Whether the database answers."""
    Worker.objects.exists()
    return True


def look_at_broker() -> bool:
    """Whether the queue's broker answers."""
    get_broker().queue_size()
    return True


def look_at_worker() -> bool:
    """Whether a worker was heard of lately."""
    return Worker.objects.alive().exists()


class Readiness:
    """Looks at each part in a thread of its own, so that one that hangs keeps nobody waiting longer than is said.

    There is one look at a part at a time, however many ask.
    """

    def __init__(self, parts: Mapping[str, Callable[[], bool]]) -> None:
        self._parts = parts
        self._threads = ThreadPoolExecutor(max_workers=max(1, len(parts)), thread_name_prefix="readiness")
        self._lock = threading.Lock()
        self._looks: dict[str, tuple[float, Future[str]]] = {}
        self._away: set[str] = set()
        """What was told to be away."""

    def read(self) -> dict[str, bool]:
        """By part whether it is well. Takes ``PATIENCE`` at most."""
        looks = {name: self._look(name) for name in self._parts}
        done, _ = wait_for(looks.values(), timeout=PATIENCE)
        late = f"no answer within {PATIENCE:g} seconds"
        problems = {name: look.result() if look in done else late for name, look in looks.items()}
        self._tell({name: problem for name, problem in problems.items() if problem})
        return {name: not problem for name, problem in problems.items()}

    def _tell(self, problems: Mapping[str, str]) -> None:
        """Log what changed; what goes on is told by each answer."""
        with self._lock:
            gone, back, self._away = problems.keys() - self._away, self._away - problems.keys(), set(problems)
        for name in sorted(gone):
            logger.warning("Not ready: the %s is away. (%s)", name, problems[name])
        for name in sorted(back):
            logger.warning("The %s is there again.%s", name, "" if problems else " Ready.")

    def _look(self, name: str) -> Future[str]:
        """The look at a part that is under way or fresh, or a new one."""
        with self._lock:
            begun_at, look = self._looks.get(name, (0.0, None))
            if look is None or (look.done() and time.monotonic() - begun_at >= FRESH):
                look = self._threads.submit(_try_look, self._parts[name])
                self._looks[name] = time.monotonic(), look
            return look


def _try_look(look: Callable[[], bool]) -> str:
    """Why a part is away; empty if it is well."""
    try:
        return "" if look() else "nothing was heard of it lately"
    except Exception as error:  # noqa: BLE001  # whatever keeps a part from answering, it is away
        return " ".join(str(error).split()) or type(error).__name__
    finally:
        # The next look is seconds away, and this thread does nothing else.
        connections.close_all()


readiness = Readiness({"database": look_at_database, "broker": look_at_broker, "worker": look_at_worker})
