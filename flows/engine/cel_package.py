"""The package ``cel``, without its command line.

``cel`` imports that as well, and with it a toolkit for terminals: a third of the time in which a process of ToolFlow
starts. Everything here imports ``cel`` from this module.
"""

from __future__ import annotations

import sys
from types import ModuleType

_COMMAND_LINE = "cel.cli"

if _COMMAND_LINE in sys.modules:
    import cel
else:
    sys.modules[_COMMAND_LINE] = ModuleType(_COMMAND_LINE)
    try:
        import cel
    finally:
        # Whoever wants it can still import it.
        del sys.modules[_COMMAND_LINE]

OptionalValue = cel.OptionalValue
STDLIB_FUNCTIONS = cel.stdlib.STDLIB_FUNCTIONS

__all__ = ["STDLIB_FUNCTIONS", "OptionalValue", "cel"]
