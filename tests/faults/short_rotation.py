"""``python -m tests.faults.short_rotation``: ``manage.py run_worker`` with drains that rotate after seconds.

How long a drain works is no setting: it is bound to the queue's own limits. Here it is shortened before the worker
forks its processes, so that a test need not wait for minutes.
"""

from __future__ import annotations

import django

django.setup()

from django.core.management import call_command  # noqa: E402  # Django has to be set up first

from runs.worker import event_loop  # noqa: E402

if __name__ == "__main__":
    event_loop.ROTATION = (2.0, 3.0)
    call_command("run_worker")
