"""Trying a step of a flow that is being edited, on an earlier run or on typed values, without making a run.

``trial`` is a step with what it works on: its request, and what its audits say about an output. ``model_call`` makes
one call of the model. Nothing here writes rows, except that a call is charged to the flow's total budget and logged.
"""
