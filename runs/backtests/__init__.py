"""Backtests: what another definition of a flow would have made of runs that ended, at zero tokens.

``requests`` fixes the runs that are judged and stores the request; ``work`` judges them batch by batch; ``totals`` adds
up what was found and says it in a sentence; ``predictions`` holds it against what came.
"""
