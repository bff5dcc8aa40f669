"""The simulated model: an OpenAI-compatible server that costs nothing and comes out the same each time.

``SimulatedModel`` is an ASGI application. In process it is behind the real ``openai`` client
(``openai_client.simulated_client``); over TCP, ``python -m flows.engine.simulated_model`` serves it.
"""

from flows.engine.simulated_model.app import CallRecord, SimulatedModel
from flows.engine.simulated_model.invention import invent_value
from flows.engine.simulated_model.script import Fault, FaultKind, Faults, Latency, Reply, Script

__all__ = [
    "CallRecord",
    "Fault",
    "FaultKind",
    "Faults",
    "Latency",
    "Reply",
    "Script",
    "SimulatedModel",
    "invent_value",
]
