"""``python -m benchmarks``: run all benchmarks, one after the other, and print a table for each."""

from __future__ import annotations

import asyncio

from benchmarks import engine_overhead


def main() -> None:
    """Run every benchmark."""
    asyncio.run(engine_overhead.main())


if __name__ == "__main__":
    main()
