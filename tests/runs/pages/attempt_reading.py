"""Reading the attempts on the page of a run."""

from __future__ import annotations

import re

_ATTEMPT = re.compile(
    r'<details class="attempt" id="(s[1-9]\d*a\d+)"( open)?.*?<div class="attempt-content" id="[^"]*"( data-load)?',
    re.DOTALL,
)


def find_attempts(page: str) -> dict[str, str]:
    """How each attempt is: ``open``; ``waiting``, open too but loaded once a reader gets there; ``closed``."""
    return {
        id: ("waiting" if later else "open") if is_open else "closed" for id, is_open, later in _ATTEMPT.findall(page)
    }
