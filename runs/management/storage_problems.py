"""What to do where the disk is full, or a folder is read-only."""

from __future__ import annotations

import errno
from pathlib import Path

from django.conf import settings

_FULL = ("database or disk is full", "disk I/O error", errno.ENOSPC, errno.EDQUOT)
"""What SQLite says, and the error numbers of the system."""
_READ_ONLY = ("unable to open database file", "attempt to write a readonly database", errno.EROFS, errno.EACCES)


def find_remedy(error: BaseException | None) -> str:
    """What the operator has to do about an error, in one sentence; empty where it is none of storage."""
    if isinstance(error, OSError):
        what: object = error.errno
        folder = Path(error.filename).parent if error.filename else settings.TOOLFLOW_DATA_DIR
    else:
        what = str(error)
        folder = Path(settings.DATABASES["default"]["NAME"]).parent
    if what in _FULL:
        return f"Check the free space of the disk that holds {folder}."
    if what in _READ_ONLY:
        return f"The folder {folder} must exist, and this user must be able to write to it and to the files in it."
    return ""
