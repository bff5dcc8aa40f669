"""A flow as one file that people read and write: YAML, of which JSON is a part. ``docs/flow-files.md`` describes it.

Nothing here needs Django.
"""

from pathlib import Path

from flows.flow_file.reading import MAX_FILE_BYTES, FileProblem, FlowFileError, decode_text, parse_document, parse_flow
from flows.flow_file.writing import render_document, render_flow

_PACKED = Path(__file__).resolve().with_name("flow.schema.json")
SCHEMA_PATH = _PACKED if _PACKED.exists() else Path(__file__).resolve().parents[2] / "docs" / "flow.schema.json"
"""The JSON Schema of the format. Written files say that it is beside them."""

__all__ = [
    "MAX_FILE_BYTES",
    "SCHEMA_PATH",
    "FileProblem",
    "FlowFileError",
    "decode_text",
    "parse_document",
    "parse_flow",
    "render_document",
    "render_flow",
]
