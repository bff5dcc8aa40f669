"""Installations that tests may do anything to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from flows.engine.simulated_model import Faults, Latency, SimulatedModel
from flows.engine.simulated_model.script import NO_FAULTS
from tests.availability import explain_absence, is_required
from tests.databases import hold_database, migrate, name_database, share_sqlite_template
from tests.faults.flows import SCRIPT
from tests.faults.installation import Installation
from tests.faults.provider import CountingModel
from tests.faults.services import (
    Backend,
    PrivatePostgres,
    PrivateRedis,
    choose_redis_database,
    copy_sqlite,
    find_postgres_programs,
)

LATENCY = (0.1, 0.3)
"""Seconds that the provider takes to answer."""

LONG = bool(os.environ.get("TOOLFLOW_TEST_LONG"))
"""Whether faults last as long as they do in the field."""
RUNS = 24 if LONG else 16
"""Runs of one test: more than a worker process takes, so that some are always left in the queue."""
CANCEL_LIMIT = 2.0 if LONG else 6.0
"""Seconds that a cancel may take; more where other tests run beside this one."""

Build = Callable[..., Installation]
"""Takes a ``Backend``, what differs from the ordinary provider, and what is added to the environment."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the hosts wrote where a test fails."""
    report = yield
    built: list[Installation] = getattr(item, "funcargs", {}).get("installations", [])
    if report.when == "call" and report.failed:
        report.sections += [("Logs", installation.read_logs()) for installation in built]
    return report


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for everything that a test's installation keeps."""
    # Beside pytest's own: other users, such as a PostgreSQL server's, have to get in.
    with tempfile.TemporaryDirectory(prefix="toolflow-faults-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with empty tables."""
    return share_sqlite_template(tmp_path_factory)


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a PostgreSQL database with empty tables."""
    with hold_database(postgres_url) as url:
        migrate(url, tmp_path_factory.mktemp("template"))
        yield name_database(url)


@pytest.fixture
def sqlite(sqlite_template: Path, folder: Path) -> Backend:
    """The embedded default: SQLite, which holds the queue as well."""
    return copy_sqlite(sqlite_template, folder)


@pytest.fixture
def redis_database(redis_url: str) -> str:
    """The address of a Redis database for this test alone."""
    return choose_redis_database(redis_url)


@pytest.fixture
def postgres(
    postgres_url: str, postgres_template: str, redis_database: str, installations: list[Installation]
) -> Iterator[Backend]:
    """PostgreSQL and Redis."""
    with hold_database(postgres_url, template=postgres_template) as url:
        yield Backend(url, redis_database)
        close_all(installations)


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.redis, pytest.mark.nightly])]
)
def backend(request: pytest.FixtureRequest) -> Any:
    """The embedded default and, where there is time for it, what several hosts share."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def installations() -> Iterator[list[Installation]]:
    """All that a test has built; closed at its end, and before their database goes."""
    built: list[Installation] = []
    yield built
    close_all(built)


def close_all(installations: list[Installation]) -> None:
    """End all processes of these installations."""
    for installation in installations:
        installation.close()


@pytest.fixture
def build(folder: Path, installations: list[Installation]) -> Build:
    """Builds installations: give it a ``backend``, and what differs from the default model and environment."""

    def build(
        backend: Backend, *, latency: Latency = LATENCY, faults: Faults = NO_FAULTS, **environment: str
    ) -> Installation:
        model = SimulatedModel(script=SCRIPT, faults=faults, keep_calls=0)
        provider = CountingModel(model, latency=latency)
        installation = Installation(folder=folder, backend=backend, provider=provider, environment=environment)
        installations.append(installation)
        return installation

    return build


@pytest.fixture
def installation(build: Build, backend: Backend) -> Installation:
    """An installation with the ordinary lease of a minute: what is fixed sooner did not wait for it."""
    return build(backend)


@pytest.fixture(scope="session")
def _private_cluster() -> Iterator[tuple[PrivatePostgres, str]]:
    """A PostgreSQL server for tests to stop, and the name of a database with empty tables."""
    programs = find_postgres_programs()
    if programs is None:
        _give_up("postgres")
    with tempfile.TemporaryDirectory(prefix="toolflow-faults-postgres-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        place = Path(name) / "cluster"
        place.mkdir()
        server = PrivatePostgres(place, programs)
        server.start()
        with hold_database(server.url) as url:
            migrate(url, Path(name))
            yield server, name_database(url)
        server.stop(mode="immediate")


@pytest.fixture
def private_postgres(_private_cluster: tuple[PrivatePostgres, str]) -> PrivatePostgres:
    """A running PostgreSQL server that the test may stop, if it starts it again."""
    return _private_cluster[0]


@pytest.fixture(
    params=[pytest.param("database", marks=pytest.mark.nightly), pytest.param("redis", marks=pytest.mark.redis)]
)
def private_backend(
    request: pytest.FixtureRequest, _private_cluster: tuple[PrivatePostgres, str], installations: list[Installation]
) -> Iterator[Backend]:
    """A database on ``private_postgres``, with the queue in it or in Redis."""
    server, template = _private_cluster
    redis_url = request.getfixturevalue("redis_database") if request.param == "redis" else ""
    with hold_database(server.url, template=template) as url:
        yield Backend(url, redis_url)
        close_all(installations)
        server.ensure_running()


@pytest.fixture
def private_redis(folder: Path) -> Iterator[PrivateRedis]:
    """A running Redis server that the test may stop."""
    if shutil.which("redis-server") is None:
        _give_up("redis")
    server = PrivateRedis(folder)
    server.start()
    yield server
    server.stop()


def _give_up(part: str) -> NoReturn:
    give_up = pytest.fail if is_required(part) else pytest.skip
    give_up(explain_absence(part))
