"""Those who ask during a load test: readers whose pages keep themselves up to date, a script, and Prometheus.

All of them are tasks of one process with one event loop, which parses next to nothing: it shares the cores with what is
measured.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import math
import random
import re
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.contender import ROOT, ContenderError
from benchmarks.load_ledger import NO_ANSWER, Ledger
from benchmarks.setting import Load

PAGES = ("a run’s page", "asked in vain", "an update")
API = ("list", "run", "issues", "create")
METRICS = "metrics"
EXPECTED = {"a run’s page": {200}, "live": {200, 204}, "create": {202}}
"""What is right; 200 where nothing stands here."""

SCRIPT = ROOT / "static" / "toolflow" / "js" / "live_updates.js"
TICK = 0.25
"""Seconds between looks of a page whether it is time to ask."""
PATIENCE = 20
"""Seconds that a page waits for an answer, as it says in its ``hx-request``."""
BETWEEN_PAGES = 2.0
"""Seconds that a reader looks at how a run ended before another one is opened."""
READS = ("list", "run", "run", "issues")
MOST_CREATED = 0.75
"""The share of the script's requests that may create runs while some are missing."""
WAITING_SHARE = 0.1
"""So many runs more than are to be under way wait in the queue, so that one begins where one ends."""
LOOK = 1.0
"""Seconds between two scrapes of the metrics."""

_POLLER = re.compile(r'<div id="live" hidden hx-get="([^"]+)"')
_SAMPLE = re.compile(r"^toolflow_(running_runs|queued_runs|runs_ended_total)(?:\{(.*)\})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a page asks, in seconds, as its script says."""

    fastest: float
    slowest: float
    slowest_while_lost: float
    share: float

    def choose_pause(self, since_change: float, failures: int) -> float:
        """Seconds until the next question, when nothing has changed for so long or so many questions failed."""
        if failures:
            pause = min(self.fastest * 2.0**failures, self.slowest_while_lost)
        else:
            pause = min(max(since_change * self.share, self.fastest), self.slowest)
        return math.ceil(pause / TICK) * TICK


def read_pace() -> Pace:
    """The pace of the script as it is now. Raises ``ContenderError`` if it says none."""
    text = SCRIPT.read_text()
    found = {name: re.search(rf"\bconst {name} = ([0-9_.]+);", text) for name in _CONSTANTS}
    if missing := [name for name, match in found.items() if match is None]:
        raise ContenderError(f"{SCRIPT.name} does not say {', '.join(missing)}.")
    fastest, slowest, lost, share = (float(match[1]) for match in found.values() if match is not None)
    return Pace(fastest / 1_000, slowest / 1_000, lost / 1_000, share)


_CONSTANTS = ("FASTEST", "SLOWEST", "SLOWEST_WHILE_LOST", "SHARE")


class Clients:
    """All who ask one installation; ``known`` is what its setup said."""

    def __init__(self, port: int, known: dict[str, Any], load: Load, *, metrics_token: str) -> None:
        self.ledger = Ledger()
        self.in_flight: list[int] = []
        """Runs that were under way at each look."""
        self.ended: dict[str, int] = {}
        """Runs that have ever ended, by status."""
        self._base = f"http://127.0.0.1:{port}"
        self._known, self._load = known, load
        self._token = {"Authorization": f"Bearer {known['token']}"}
        self._metrics_token = {"Authorization": f"Bearer {metrics_token}"}
        self._pace = read_pace()
        self._wanted = math.ceil(load.in_flight * (1 + WAITING_SHARE))
        self._missing = 0
        self._created: deque[int] = deque(known["runs"], maxlen=2 * self._wanted)
        self._number = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession

    async def begin(self, warm_up: float) -> None:
        """Start the runs, a part at a time, and let the readers and the script come; takes ``warm_up`` seconds."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        parts = min(20, self._wanted)
        began = time.perf_counter()
        for part in range(parts):
            await self._create_many(self._wanted * (part + 1) // parts - self._wanted * part // parts)
            await asyncio.sleep(max(began + (part + 1) / parts * warm_up / 2 - time.perf_counter(), 0))
        self._start(self._scrape())
        self._start(self._ask_api())
        for number, session in enumerate(self._known["sessions"]):
            self._start(self._read_pages(session, wait=number / len(self._known["sessions"]) * warm_up / 2))
        await asyncio.sleep(warm_up / 2)
        self.ledger = Ledger()
        self.in_flight.clear()

    async def end(self) -> None:
        """Send everybody away."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._let_go)

    def _let_go(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.ledger.errors[f"a client broke: {error!r}"] += 1

    async def _read_pages(self, session: str, *, wait: float) -> None:
        """One reader: opens the page of a run that was started lately, stays until it has ended, opens the next."""
        headers = {"Cookie": f"sessionid={session}; toolflow_time_zone=Europe/Berlin"}
        await asyncio.sleep(wait)
        while True:
            run = random.choice(list(itertools.islice(reversed(self._created), self._wanted)))
            page = await self._get("a run’s page", f"/runs/{run}/", headers)
            await self._follow(page, {**headers, "HX-Request": "true"})
            await asyncio.sleep(BETWEEN_PAGES)

    async def _follow(self, page: bytes, headers: dict[str, str]) -> None:
        """Ask for news as an open page does, until it says that the run has ended."""
        address = find_poller(page)
        changed = asked = time.perf_counter()
        failures = 0
        while address is not None:
            pause = self._pace.choose_pause(asked - changed, failures)
            await asyncio.sleep(max(asked + pause - time.perf_counter(), 0))
            asked = time.perf_counter()
            answer = await self._get("live", address, headers)
            failures = failures + 1 if answer is FAILED else 0
            if answer and answer is not FAILED:
                address, changed = find_poller(answer), time.perf_counter()

    async def _ask_api(self) -> None:
        """The script: so many requests a second, whether or not earlier ones were answered."""
        began = time.perf_counter()
        created = 0.0
        for number in itertools.count():
            await asyncio.sleep(max(began + number / self._load.requests_per_second - time.perf_counter(), 0))
            created = min(created + MOST_CREATED, 1 + MOST_CREATED)
            if self._missing > 0 and created >= 1:
                self._missing -= 1
                created -= 1
                self._start(self._create_one())
            else:
                self._start(self._read_something())

    async def _read_something(self) -> None:
        kind = random.choice(READS)
        run = random.choice(self._created)
        path = {"list": "/runs", "run": f"/runs/{run}", "issues": f"/runs/{run}/issues"}[kind]
        await self._get(kind, f"/api/v1{path}", self._token)

    async def _create_one(self) -> None:
        answer = await self._send("create", "POST", "/api/v1/runs", self._token, self._make_order())
        if answer is not FAILED:
            self._created.append(json.loads(answer)["id"])

    async def _create_many(self, count: int) -> None:
        orders = {"flow": self._known["order"]["flow"], "runs": [self._make_order(None) for _ in range(count)]}
        answer = await self._send("create", "POST", "/api/v1/runs/bulk", self._token, orders)
        if answer is FAILED:
            raise ContenderError(f"No runs could be started: {self.ledger.errors}")
        self._created.extend(find_numbers(json.loads(answer)))

    def _make_order(self, flow: str | None = "") -> dict[str, Any]:
        # Each run is about something else: the model takes another time for it.
        order = self._known["order"]
        input = {**order["input"], "brand": f"{order['input']['brand']} {next(self._number)}"}
        return {"input": input} if flow is None else {"flow": order["flow"], "input": input}

    async def _scrape(self) -> None:
        while True:
            text = (await self._get(METRICS, "/metrics", self._metrics_token)).decode()
            figures = [(name, labels, int(float(value))) for name, labels, value in _SAMPLE.findall(text)]
            if figures:
                running = sum(value for name, _, value in figures if name == "running_runs")
                queued = sum(value for name, _, value in figures if name == "queued_runs")
                self.in_flight.append(running)
                self._missing = self._wanted - running - queued
                self.ended = {}
                for name, labels, value in figures:
                    if name == "runs_ended_total" and f'flow="{self._known["order"]["flow"]}"' in labels:
                        status = re.search(r'status="(\w+)"', labels)
                        self.ended[status[1] if status else ""] = value
            await asyncio.sleep(LOOK)

    async def _get(self, kind: str, path: str, headers: dict[str, str]) -> bytes:
        return await self._send(kind, "GET", path, headers, None)

    async def _send(self, kind: str, method: str, path: str, headers: dict[str, str], document: Any) -> bytes:
        """The body of the answer; ``FAILED`` if there is none, or not the right one."""
        began = time.perf_counter()
        try:
            async with self._session.request(method, self._base + path, headers=headers, json=document) as answer:
                body = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError) as error:
            body, status = f"{type(error).__name__}: {error}".encode(), NO_ANSWER
        seconds = time.perf_counter() - began
        is_right = status in EXPECTED.get(kind, {200})
        name = kind if kind != "live" else "asked in vain" if status == 204 else "an update"
        self.ledger.note(name, status, seconds)
        if not is_right:
            self.ledger.errors[
                f"{method} {re.sub('[0-9]+', 'N', path.partition('?')[0])}: {status} {body[:200]!r}"
            ] += 1
            return FAILED
        return body


FAILED = b"\0"
"""Stands for an answer that was none."""


def find_poller(page: bytes) -> str | None:
    """The address that a page asks for news; None if its run has ended."""
    found = _POLLER.search(page.decode(errors="replace"))
    return html.unescape(found[1]) if found else None


def find_numbers(answer: Any) -> list[int]:
    """The numbers of runs that were started together."""
    return [run["id"] for run in answer["runs"]]
