"""Messages lost and brokers away: the table of runs is the truth, a message only makes its reading quicker."""

from __future__ import annotations

import pytest

from tests.faults.conftest import RUNS, Build
from tests.faults.flows import CALLS, THREE_STEPS
from tests.faults.installation import Installation
from tests.faults.services import Backend, PrivateRedis

pytestmark = pytest.mark.faults


def test_runs_whose_messages_were_lost_before_the_worker_started_are_executed(installation: Installation) -> None:
    installation.submit(THREE_STEPS, RUNS)
    assert installation.observer.ask("drop_messages") > 0
    installation.start_host()
    installation.check_end({"succeeded": RUNS}, calls=RUNS * CALLS)


@pytest.mark.nightly
def test_runs_go_on_when_the_queue_was_emptied_and_their_worker_killed(installation: Installation) -> None:
    host = installation.start_work(RUNS)
    installation.observer.ask("drop_messages")
    installation.kill("drain", host.find_drains())
    installation.observer.ask("drop_messages")
    installation.check_end({"succeeded": RUNS})


@pytest.mark.redis
@pytest.mark.postgres
@pytest.mark.nightly
def test_runs_start_and_go_on_while_the_broker_is_away(
    build: Build, postgres: Backend, private_redis: PrivateRedis
) -> None:
    installation = build(Backend(postgres.database_url, private_redis.url))
    host = installation.start_work(RUNS)
    private_redis.stop()
    installation.kill("drain", host.find_drains())
    installation.submit(THREE_STEPS.name, RUNS)
    installation.wait_for_all()

    private_redis.start()
    installation.submit(THREE_STEPS.name, RUNS)
    installation.check_end({"succeeded": 3 * RUNS})
