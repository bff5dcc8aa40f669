"""Whether the owner of a run is alive, as far as this machine can tell."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from runs.ownership import Owner, _read_start

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has"), pytest.mark.sql]


def test_a_worker_in_this_process_is_alive() -> None:
    assert not Owner.of_this_process().is_gone


def test_the_name_says_all_there_is_to_know() -> None:
    owner = Owner.of_this_process()
    assert Owner.parse(str(owner)) == owner
    assert len(str(owner)) <= 200


def test_two_drains_of_one_process_have_different_names() -> None:
    assert str(Owner.of_this_process()) != str(Owner.of_this_process())


def test_a_worker_whose_process_ended_is_gone_also_while_nobody_took_note_of_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = dataclasses.replace(Owner.of_this_process(), pid=process.pid, started=_read_start(process.pid))
        assert not owner.is_gone
        process.kill()
        # A zombie until its parent asks: its memory and its connections are gone already.
        assert process.wait() != 0
        assert owner.is_gone


def test_another_process_with_the_same_id_is_not_taken_for_the_worker() -> None:
    assert dataclasses.replace(Owner.of_this_process(), started="1").is_gone


@pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"namespace": "1"}, {"boot": "", "namespace": ""}])
def test_nothing_is_said_about_workers_of_other_machines_and_containers(elsewhere: dict[str, str]) -> None:
    assert not dataclasses.replace(Owner.of_this_process(), started="1", **elsewhere).is_gone


@pytest.mark.parametrize("name", ["", "worker-1", "host:123:abc", "a/b/c/x/e/f", "a/b/c/1/e"])
def test_other_names_are_nobody(name: str) -> None:
    assert Owner.parse(name) is None
