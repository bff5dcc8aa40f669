"""Writes a flow file: readable for people, and read alike by parsers of YAML 1.1, YAML 1.2 and JSON's types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from flows.engine.spec import FlowSpec
from flows.flow_file.reading import parse_plain

HEAD = """\
# A flow of ToolFlow. Its docs/flow-files.md describes the format.
# yaml-language-server: $schema=flow.schema.json
"""
"""How every written file begins: editors look for the JSON Schema beside the file."""

_LINE_WIDTH = 80
"""A list or object of plain values goes on one line if its values have at most this many characters."""

_UNBROKEN = 2**31
"""Columns: no line of text is folded."""

_TEXT_TAG = "tag:yaml.org,2002:str"
# What double quotes can hold only with an escape.
_ESCAPED = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe]")
_BREAKS = re.compile(r"[\n\x85\u2028\u2029]")
# Neither what needs an escape, nor the line breaks that only YAML 1.1 knows, nor the byte order mark.
_BLOCK = re.compile(r"[\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010fffd]*")


def render_flow(spec: FlowSpec) -> str:
    """The file of a flow. Reading it gives an equal spec with the same digest.

    Fields come in the order of the reference, those that hold their default are left out. The frozen schemas of
    registered output types are part of the file, so that the flow is the same wherever it is read.
    """
    return render_document(spec.to_document())


def render_document(document: Mapping[str, Any]) -> str:
    """The file of a document, whether it makes a flow or not."""
    fields = {key: value for key, value in document.items() if key != "steps"}
    parts = document.get("steps")
    if not isinstance(parts, list) or not parts or not all(isinstance(step, dict) for step in parts):
        return f"{HEAD}\n{_dump(_Part(document))}"
    steps = "\n".join(_dump([_Part(step)]) for step in parts)
    return f"{HEAD}\n{''.join(_dump(_Part({key: value})) for key, value in fields.items())}\nsteps:\n{steps}"


class _Part(dict[str, Any]):
    """A flow, a step or an audit: each of its fields is on a line of its own."""


def _dump(value: Any) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_UNBROKEN)
    return text


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper with text in literal blocks, short lists on one line, and no references."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value in each place, also if the same object occurs elsewhere."""
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        """A list, on one line if it is short."""
        node = super().represent_sequence(tag, sequence, flow_style=False)
        node.flow_style = _fits_line(node.value)
        return node

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """An object, on one line if it is short and no part of a flow."""
        if isinstance(mapping, _Part) and isinstance(audits := mapping.get("audits"), list):
            parts = [_Part(audit) if isinstance(audit, dict) else audit for audit in audits]
            mapping = {**mapping, "audits": parts}
            return super().represent_mapping(tag, mapping, flow_style=False)
        node = super().represent_mapping(tag, mapping, flow_style=False)
        if not isinstance(mapping, _Part):
            node.flow_style = _fits_line([part for entry in node.value for part in entry])
        return node

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Text, in quotes where a reader of any YAML would take it for something else."""
        return self.represent_scalar(_TEXT_TAG, text, style=None if _is_plain(text) else "'")

    def choose_scalar_style(self) -> str:
        """How a scalar is written: a literal block for text in several lines, or with quotes that would be doubled."""
        style: str = super().choose_scalar_style()
        text: str = getattr(self.event, "value", "")
        has_doubled_quotes = style == "'" and "'" in text
        if has_doubled_quotes and not _ESCAPED.search(text):
            return '"'
        if not has_doubled_quotes and not _BREAKS.search(text):
            return style
        is_behind_key = not self.flow_level and not self.simple_key_context
        return "|" if is_behind_key and _fits_block(text) else '"'


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(_Part, yaml.SafeDumper.represent_dict)


def _fits_line(parts: list[yaml.Node]) -> bool:
    """Whether scalars can be on one line; what is empty has no other form."""
    if not all(isinstance(part, yaml.ScalarNode) for part in parts):
        return False
    width = sum(len(part.value) + 2 for part in parts)
    return width <= _LINE_WIDTH and not any(_BREAKS.search(part.value) for part in parts)


def _is_plain(text: str) -> bool:
    # Some programs read single letters as true and false. PyYAML itself knows what else YAML 1.1 takes for no text.
    try:
        return parse_plain(text) is text and text not in set("yYnN")
    except ValueError:
        return False


def _fits_block(text: str) -> bool:
    # A block's indentation is that of its first line, which a tab hides; its end needs a line with content.
    last = text.removesuffix("\n").rpartition("\n")[2]
    return _BLOCK.fullmatch(text) is not None and text[0] != "\t" and bool(last.strip(" \t"))
