"""``python -m runs.client`` is ``toolflow``, and so is what the package installs under that name."""

from __future__ import annotations

import sys


def main() -> None:
    """Do what the command line says, and end the process with its exit status; Ctrl-C ends it at any moment."""
    try:
        # Most of a short command's time goes into this.
        from runs.client.main import main as do

        do()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
