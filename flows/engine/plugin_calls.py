"""Calls plug-ins: copies of what they are given, time limits, and threads for what may never return."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from flows.engine.clock import describe_seconds
from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.json_values import MAX_DEPTH, MAX_VALUES, clean_value
from flows.engine.plugins import PythonFunction

MAX_THREADS = 32
"""Calls in threads at one time, without the abandoned ones."""
MAX_ABANDONED = 8
"""Abandoned calls of one function that still run, before it is not called any more."""
MAX_MESSAGE_LENGTH = 1_000
"""Characters that are kept of what a Python function raised."""

_JSON_TYPES = frozenset({bool, dict, list, str, type(None)})
"""What functions give as a rule: to know these by their type is far cheaper than to ask what they can do."""
_WHOLE = (str, bytes, Mapping, BaseModel)
"""What can be gone through and is one thing all the same."""


async def call_function(name: str, function: PythonFunction, variables: Mapping[str, Any], *, timeout: float) -> Any:
    """Call a Python function, off the event loop unless it is a coroutine function; a generator becomes a list.

    What it changes in its variables reaches neither history nor another function; only a typed output may be beyond
    copying. ``timeout`` is in seconds. Raises ``ExpressionError`` for whatever it raises, and if it does not return in
    time.
    """

    def call() -> Any:
        return function.function(**{name: copy_value(value) for name, value in function.select(variables).items()})

    if function.is_async:
        return await _finish_call(name, call, timeout)
    value = await plugin_threads.run(name, partial(_call_in_thread, name, call), timeout=timeout)
    if isinstance(value, Awaitable | AsyncIterator):
        return await _finish_call(name, lambda: value, timeout)
    return value


async def _finish_call(name: str, call: Callable[[], Any], seconds: float) -> Any:
    """What an asynchronous call gives in the end."""
    found: list[Any] = []
    try:
        async with asyncio.timeout(seconds):
            try:
                value = call()
                if isinstance(value, Awaitable):
                    value = await value
                if isinstance(value, AsyncIterator):
                    async for element in value:
                        found.append(element)  # noqa: PERF401  # what came before an error is kept
                    value = found
                return _take(value, found)
            except (Exception, SystemExit) as error:
                raise _wrap_error(name, error, found) from error
    except TimeoutError:
        # One that the function raised itself has become its fault already.
        raise ExpressionTimeout(f"“{name}” did not return within {describe_seconds(seconds)}.") from None


def _call_in_thread(name: str, call: Callable[[], Any]) -> Any:
    found: list[Any] = []
    try:
        return _take(call(), found)
    except BaseException as error:
        # Whatever left the thread as it is might mean something else there: a StopIteration would never reach the task.
        raise _wrap_error(name, error, found) from error


def _take(value: Any, found: list[Any]) -> Any:
    """What a function gave; generators and the like run here, where what they raise is expected, and become lists.

    A copy: the function may keep what it gave, and change it later. ``found`` collects the elements of a generator.
    """
    if type(value) in _JSON_TYPES or isinstance(value, _WHOLE) or not isinstance(value, Iterable):
        return copy_json(value)
    found.extend(islice(value, MAX_VALUES + 1))
    if len(found) > MAX_VALUES:
        raise ValueError(f"it gave more than {MAX_VALUES:,} elements")
    return copy_json(found)


def _wrap_error(name: str, error: BaseException, found: list[Any]) -> ExpressionError:
    """What a function raised as an error that says who raised it, with what it ``found`` before."""
    kept: list[Any] = []
    with suppress(ValueError):  # too many parts to be copied
        kept = copy_json(found)
    return ExpressionError(f"“{name}” raised {describe_exception(error)}", found=kept)


def describe_exception(error: BaseException) -> str:
    """The class and the message of what foreign code raised, in a form that can be stored."""
    words = type(error).__name__
    with suppress(Exception):  # an error may be unable to say what it is
        words = f"{words}: {str(error)[:MAX_MESSAGE_LENGTH]}" if str(error) else words
    return str(clean_value(words).value)


def copy_value(value: Any) -> Any:
    """A copy of a JSON value or typed output, or the typed output itself if it can't be copied: it may hold a lock."""
    if not isinstance(value, BaseModel):
        return copy_json(value)
    try:
        return value.model_copy(deep=True)
    except Exception:  # noqa: BLE001  # copying runs code of the plug-in, which may raise anything
        return value


def copy_json(value: Any) -> Any:
    """A copy of a JSON value that shares no object or list with it; what is no JSON stays the same object.

    What stands in several places is copied for each. Raises ``ValueError`` if that gives more than ``MAX_VALUES``.
    """
    left = MAX_VALUES

    def copy(value: Any, depth: int) -> Any:
        nonlocal left
        kind = type(value)
        if (kind is not dict and kind is not list) or depth >= MAX_DEPTH:
            return value
        left -= len(value)
        if left < 0:
            raise ValueError(f"the value has more than {MAX_VALUES:,} parts")
        if kind is dict:
            return {key: copy(item, depth + 1) for key, item in value.items()}
        return [copy(item, depth + 1) for item in value]

    return copy(value, 0)


class DaemonThreads:
    """Calls that may never return, each in a thread of its own, at most ``max_threads`` at a time for each event loop.

    No thread can be stopped from outside: a call that takes too long is abandoned and its place goes to another one.
    The threads are daemons, so that a process with stuck ones can still exit.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._abandoned: Counter[str] = Counter()

    @property
    def abandoned(self) -> int:
        """How many abandoned calls still run."""
        return self._abandoned.total()

    async def run(self, name: str, call: Callable[[], Any], *, timeout: float) -> Any:
        """What ``call`` gives, called in a thread with the context of the caller.

        ``timeout`` is in seconds from when the call begins. ``name`` says whose call it is. Raises what the call
        raises, ``ExpressionTimeout`` if it does not return in time, and ``ExpressionError`` without a call if
        ``MAX_ABANDONED`` earlier ones of that name still run.
        """
        if self._abandoned[name] >= MAX_ABANDONED:
            raise ExpressionError(
                f"“{name}” is not called: {self._abandoned[name]} earlier calls of it on this worker did not return "
                "in time and are still running."
            )
        async with self._find_slots():
            result: Future[Any] = Future()
            result.set_running_or_notify_cancel()
            waiting = asyncio.wrap_future(result)
            threading.Thread(target=copy_context().run, args=(_call, call, result), name="call", daemon=True).start()
            try:
                await asyncio.wait({waiting}, timeout=timeout)
                if waiting.done():
                    return waiting.result()
                raise ExpressionTimeout(f"“{name}” did not return within {describe_seconds(timeout)}.")
            finally:
                if not waiting.done():
                    waiting.cancel()
                    self._abandon(name, result)

    def _find_slots(self) -> asyncio.Semaphore:
        with self._lock:
            return self._slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._max_threads))

    def _abandon(self, name: str, result: Future[Any]) -> None:
        self._count_abandoned(name, 1)
        result.add_done_callback(lambda _: self._count_abandoned(name, -1))

    def _count_abandoned(self, name: str, change: int) -> None:
        with self._lock:
            self._abandoned[name] += change


def _call(call: Callable[[], Any], result: Future[Any]) -> None:
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001  # whatever it is belongs to the caller
        result.set_exception(error)
    else:
        result.set_result(value)


plugin_threads = DaemonThreads()
"""Where synchronous plug-ins of this process are called."""
