"""``python -m runs.client`` is the command ``toolflow``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status; Ctrl-C while it loads exits with 130."""
    try:
        from runs.client.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
