"""Trying a step of a flow that is being edited: on an earlier run or on typed values, without making a run.

``basis`` is what the step works on, ``preview`` the request that it would send, ``verdict`` what its audits say about
an output, and ``model_call`` one call of the model. Nothing here writes rows, but for what a call is charged to the
flow's total budget.
"""
