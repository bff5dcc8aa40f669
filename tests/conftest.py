"""What all tests share: no way out to the network, and the parts that a machine may lack."""

from __future__ import annotations

import gc
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import pytest
from django.core.cache import caches
from django.core.management.commands import flush
from django.db import connection
from playwright.sync_api import Playwright, expect
from pytest_django import DjangoDbBlocker

from tests.availability import FINDERS, explain_absence, is_required
from tests.databases import empty_tables, hold_test_database

# What is collected, which thousands of tests are made of, is no garbage.
gc.disable()

IS_LONG = bool(os.environ.get("TOOLFLOW_TEST_LONG"))
"""Whether tests marked “nightly” are run, and others with more examples: `make nightly`."""

# How long an example takes says nothing on a busy machine; on CI the same examples are tried every time.
hypothesis.settings.register_profile(
    "toolflow", deadline=None, derandomize="CI" in os.environ and not IS_LONG, max_examples=500 if IS_LONG else 75
)
hypothesis.settings.load_profile("toolflow")

pytest_plugins = ["tests.engine.model_server"]

# A shell that starts something in the background has it ignore Ctrl-C, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATABASE_FIXTURES = {"db", "transactional_db", "live_server", "django_db_reset_sequences", "django_user_model"}
BROWSER_FOLDERS = ("tests/browser/", "tests/journeys/")
"""Where `make test` looks for tests with a browser."""
ONLY_BROWSER = "tests/browser/"
"""Where it looks for no others."""
PART_FIXTURES = {"postgres_url": "postgres", "redis_url": "redis", "chromium_path": "browser", "browser": "browser"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark tests by what they use, so that ``-m`` can choose; those with a browser come last.

    The synchronous Playwright keeps an event loop running to the end, and no asynchronous test can follow it.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & DATABASE_FIXTURES or item.get_closest_marker("django_db"):
            item.add_marker("database")
        for fixture in fixtures & PART_FIXTURES.keys():
            item.add_marker(PART_FIXTURES[fixture])
        if item.get_closest_marker("browser") and not item.nodeid.startswith(BROWSER_FOLDERS):
            raise pytest.UsageError(f"{item.nodeid}: a test with a browser is found in tests/browser, and not there.")
        if item.nodeid.startswith(ONLY_BROWSER) and not item.get_closest_marker("browser"):
            raise pytest.UsageError(f"{item.nodeid}: a test without a browser is not found there.")
    if not IS_LONG:
        left_out = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    yield
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


def pytest_collection_finish() -> None:
    """Collect no garbage among thousands of tests again and again: they stay to the end."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_modify_db_settings: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """The test database, in place of pytest-django’s: that one migrates a new one for every process."""
    held = ExitStack()
    with django_db_blocker.unblock():
        held.enter_context(hold_test_database(tmp_path_factory))
    patch = held.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(flush, "sql_flush", empty_tables)
    patch.setattr(flush, "emit_post_migrate_signal", lambda *_: None)
    yield
    with django_db_blocker.unblock():
        held.close()


class NetworkAccessError(RuntimeError):
    """A test tried to reach something beyond this machine."""


def refuse_beyond_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """Let no connection and no look-up of a name leave this machine, synchronous or not."""
    if event == "socket.connect" and arguments[0].family in {socket.AF_INET, socket.AF_INET6}:
        host = arguments[1][0]
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = arguments[0]
    else:
        return
    text = host.decode() if isinstance(host, bytes) else str(host or "")
    if text in {"", "localhost", "0.0.0.0", "::"}:  # noqa: S104  # what a server listens on
        return
    try:
        is_local = ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise NetworkAccessError(f"Tests reach nothing beyond this machine, but this one tried “{text}”.")


sys.addaudithook(refuse_beyond_loopback)


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """Empty what a process remembers for a moment: who asked how often, for one. Each test has a user number 1."""
    for cache in caches.all():
        cache.clear()


def _find(part: str) -> str:
    place = FINDERS[part][1]()
    if place is None:
        give_up = pytest.fail if is_required(part) else pytest.skip
        give_up(explain_absence(part))
    return place


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The address of a PostgreSQL database whose role may create databases, as ``DATABASE_URL`` takes it."""
    return _find("postgres")


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The address of a Redis database that this process has for itself; the last eight are taken."""
    # On PostgreSQL and on SQLite tests run at the same time.
    first = 4 if connection.vendor == "postgresql" else 0
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return urlsplit(_find("redis"))._replace(path=f"/{first + worker % 4}").geturl()


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The path of an installed Chromium."""
    return _find("chromium")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any], chromium_path: str) -> dict[str, Any]:
    """How Playwright starts the browser: the one of the machine, silent on the network."""
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-quic", "--disable-sync"]
    return {**browser_type_launch_args, "executable_path": chromium_path, "args": quiet, "chromium_sandbox": False}


@pytest.fixture(scope="session")
def playwright(playwright: Playwright) -> Iterator[Playwright]:
    """Playwright, with Django told that the event loop in this thread is Playwright's and none of ours."""
    # What never comes fails all the same, and a busy machine takes its time.
    expect.set_options(timeout=20_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield playwright
