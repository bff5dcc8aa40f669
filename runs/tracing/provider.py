"""What hands spans over to the collector, with what is known of this installation."""

from __future__ import annotations

from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from flows import __version__

BATCH_DELAY = 1_000
"""Milliseconds until spans are sent on."""


def make_provider(endpoint: str, **options: Any) -> TracerProvider:
    """A provider that tells the collector at ``endpoint``, its address without a path; whoever makes it ends it."""
    # Set as its package wants it, by OTEL_… variables; only the name is ours where none is given.
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "toolflow"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False, **options)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=BATCH_DELAY))
    return provider
