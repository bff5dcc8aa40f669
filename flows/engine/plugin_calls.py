"""Calls plug-ins: copies of what they are given, time limits, and threads for what may never return."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from flows.engine.clock import describe_seconds
from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.json_values import MAX_VALUES, clean_value
from flows.engine.plugins import PythonFunction

MAX_THREADS = 32
"""Calls in threads at one time for each event loop, without the abandoned ones."""
MAX_ABANDONED = 8
"""Abandoned calls of one function that still run, before it is not called any more."""
MAX_MESSAGE_LENGTH = 1_000
"""Characters that are kept of what a Python function raised."""

_WHOLE = (str, bytes, Mapping, BaseModel, list)
"""What can be iterated and is nonetheless taken as it is."""
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_abandoned: defaultdict[str, list[Future[Any]]] = defaultdict(list)


async def call_function(name: str, function: PythonFunction, variables: Mapping[str, Any], *, timeout: float) -> Any:
    """Call a Python function, off the event loop unless it is a coroutine function; a generator becomes a list.

    It gets copies of its variables; only a typed output may be beyond copying. ``timeout`` is in seconds. Raises
    ``ExpressionError`` for whatever it raises, and if it does not return in time.
    """
    found: list[Any] = []

    def call() -> Any:
        return function.function(**{name: copy_value(value) for name, value in function.select(variables).items()})

    def call_in_thread() -> Any:
        try:
            return _take(call(), found)
        except BaseException as error:
            # Outside of the thread a StopIteration, say, would mean something else.
            raise _wrap_error(name, error, found) from error

    if function.is_async:
        return await _finish_call(name, call, found, timeout)
    value = await _run_in_thread(name, call_in_thread, timeout)
    if isinstance(value, Awaitable | AsyncIterator):
        return await _finish_call(name, lambda: value, found, timeout)
    return value


async def _finish_call(name: str, call: Callable[[], Any], found: list[Any], timeout: float) -> Any:
    """What an asynchronous call gives in the end."""
    try:
        async with asyncio.timeout(timeout):
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
        raise _build_timeout(name, timeout) from None


async def _run_in_thread(name: str, call: Callable[[], Any], timeout: float) -> Any:
    """What ``call`` gives, called in a daemon thread with the context of the caller.

    No thread can be stopped from outside: a call that takes too long is abandoned and its place goes to another one.
    """
    running = _abandoned[name] = [result for result in _abandoned[name] if not result.done()]
    if len(running) >= MAX_ABANDONED:
        raise ExpressionError(
            f"“{name}” is not called: {len(running)} earlier calls of it on this worker did not return "
            "in time and are still running."
        )
    async with _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_THREADS)):
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()
        threading.Thread(target=copy_context().run, args=(_call, call, result), name="call", daemon=True).start()
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(result)
        except TimeoutError:
            raise _build_timeout(name, timeout) from None
        finally:
            if not result.done():
                _abandoned[name].append(result)


def _call(call: Callable[[], Any], result: Future[Any]) -> None:
    try:
        result.set_result(call())
    except BaseException as error:  # noqa: BLE001  # whatever it is belongs to the caller
        result.set_exception(error)


def _build_timeout(name: str, timeout: float) -> ExpressionTimeout:
    return ExpressionTimeout(f"“{name}” did not return within {describe_seconds(timeout)}.")


def _take(value: Any, found: list[Any]) -> Any:
    """What a function gave; generators and the like run here, where what they raise is expected, and become lists.

    A copy: the function may keep what it gave, and change it later. ``found`` collects the elements of a generator.
    """
    if isinstance(value, Iterable) and not isinstance(value, _WHOLE):
        found.extend(islice(value, MAX_VALUES + 1))
        if len(found) > MAX_VALUES:
            found.clear()
            raise ValueError(f"it gave more than {MAX_VALUES:,} elements")
        value = found
    return copy_json(value)


def _wrap_error(name: str, error: BaseException, found: list[Any]) -> ExpressionError:
    """What a function raised as an error that says who raised it, with what it ``found`` before."""
    return ExpressionError(f"“{name}” raised {describe_exception(error)}", found=copy_json(found))


def describe_exception(error: BaseException) -> str:
    """The class and the message of what foreign code raised, in a form that can be stored."""
    words = f"{type(error).__name__}: {str(error)[:MAX_MESSAGE_LENGTH]}" if str(error) else type(error).__name__
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
    """A copy of a JSON value that shares no object or list with it; what is not JSON stays the same object."""
    if type(value) is dict:
        return {key: copy_json(item) for key, item in value.items()}
    if type(value) is list:
        return [copy_json(item) for item in value]
    return value
