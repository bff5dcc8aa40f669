"""What a process may ask of Linux about its parent and its name. Elsewhere these do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15

# Loaded here, so that nothing is left to load between a fork and what follows it.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int, signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process ``signal_number`` when its parent, whose id is ``parent``, has died.

    To be called right after the fork, which must have been made by the parent's main thread: the kernel watches the
    thread. A parent that died before is noticed too, and ends this process at once.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show of this process; at most 15 characters."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
