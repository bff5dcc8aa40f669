"""``python -m runs.client`` is ``toolflow``."""

from runs.client.main import main

if __name__ == "__main__":
    main()
