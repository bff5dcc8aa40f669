"""Writing flow files: whatever a flow holds, the file gives it back, and people can read it."""

from __future__ import annotations

from decimal import Decimal

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.engine.history import Severity
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.flow_file import parse_flow, render_flow
from tests.engine.builders import make_flow, make_step

NASTY = [
    "",
    " ",
    "\n",
    "\n\n",
    " leading",
    "\n leading after an empty line",
    "\tleading tab",
    "first\n\tthen a tab",
    "trailing ",
    "trailing in a line  \nand on",
    "last line of spaces\n   ",
    "spaces between lines\n   \nof text\n",
    "ends with a line break\n",
    "ends with two\n\n",
    "Windows\r\nlines\r\n",
    "old Mac\rlines",
    "next\x85line, line\u2028separator, paragraph\u2029separator",
    "\ufeffa byte order mark",
    "\ufffe\uffff",
    "bell \x07, escape \x1b, delete \x7f",
    "emoji \U0001f3a8, flag \U0001f1f3\U0001f1f4, family \U0001f468\u200d\U0001f469",
    "no", "No", "on", "y", "true", "TRUE", "null", "~", "NULL", "0", "12", "-1", "+1", "012", "0o17", "0x1F", "1_000",
    "1e3", "1.5", ".5", "1.", ".inf", ".nan", "1:30", "2026-11-21", "2026-11-21T10:00:00Z", "=", "<<", "-", "---",
    "...", "?", ":", "!", "&a", "*a", "|", ">", "@x", "`x`", "%x", "{}", "[]", "{a: b}", "[a]", "- a", "? a", "a: b",
    "a:", "a #b", "#a", "'", '"', "''", "it's", 'a "b"', "'a' + \"b\"", "back\\slash", "'\\'", "\\n", "key: |",
    "!output.ok || false", "[1, 2].filter(x, x > 1)", "'text' + output.text", "# no comment\nbut text",
    "--- \nno document", "x" * 5_000, "word " * 1_000, "ends with a tab\t", "\u00a0no-break spaces\u00a0", "\u3000",
]  # fmt: skip

# No NUL and no half surrogate pairs: no flow holds them.
texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60),
    st.text(st.sampled_from("ab \n\t:#'\"\\-|>[]{},&*!%@`?=~019.eE_\r\x85\u2028é"), max_size=30),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=4).map("\n".join),
)
expressions = texts.filter(lambda text: 1 <= len(text) <= 4_000)
names = texts.filter(lambda text: 1 <= len(text) <= 100)
numbers = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e16, 1e-7, 1e-5, 2.0, -0.0]),
)
values = st.recursive(
    st.one_of(texts, numbers, st.booleans(), st.none()),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=12,
)
schemas = st.none() | st.dictionaries(texts, values, max_size=4)
optional = st.none() | expressions

audits = st.builds(
    AuditSpec,
    name=names,
    for_each=optional,
    rule=expressions,
    severity=st.sampled_from(list(Severity)),
    message=optional,
    suggestions=optional,
    path=optional,
)
steps = st.builds(
    StepSpec,
    name=names,
    description=texts,
    tool_name=st.none() | st.sampled_from(["no", "0x1F", "1e3", "-", "tool_1"]),
    system_message=texts,
    output_type=st.none() | texts,
    output_schema=schemas,
    compute=optional,
    input_sanitizer=optional,
    include_results=st.lists(st.integers(0, 60), max_size=5).map(tuple),
    model=st.none() | texts.filter(bool),
    temperature=st.none() | st.floats(0, 2),
    max_retries=st.integers(0, 100),
    stop_on_failure=st.booleans(),
    audits=st.lists(audits, max_size=2).map(tuple),
)
flows = st.builds(
    FlowSpec,
    name=st.sampled_from(["no", "null", "0", "1e3", "2026-11-21", "0x1f", "a-flow"]),
    title=texts.filter(lambda text: len(text) <= 200),
    description=texts,
    cost_budget=st.none() | st.decimals(Decimal("0.0001"), 1_000_000, places=8),
    time_limit=st.none() | st.integers(1, 1000),
    input_schema=schemas,
    steps=st.lists(steps, min_size=1, max_size=3).map(tuple),
)


def with_texts(*found: str) -> FlowSpec:
    """A flow that has these texts everywhere that text is possible."""
    schema = {
        "list": list(found),
        "deep": [[text, {text: [text]}] for text in found],
        **dict(zip(found, found, strict=True)),
    }
    made = (make_step(number, system_message=text) for number, text in enumerate(found, start=1))
    return make_flow(*made, title=found[0], input_schema=schema)


@settings(max_examples=100)
@given(flows)
@example(with_texts(*NASTY[:50]))
@example(with_texts(*NASTY[50:]))
def test_a_file_gives_back_the_flow_here_and_elsewhere_whatever_editors_do_to_line_breaks(spec: FlowSpec) -> None:
    text = render_flow(spec)
    for changed in (text, "\ufeff" + text.replace("\n", "\r\n")):
        again = parse_flow(changed, check=lambda spec: [])
        assert (again, again.digest) == (spec, spec.digest)
    assert FlowSpec.from_document(yaml.load(text, yaml.CSafeLoader)).digest == spec.digest
    assert text.endswith("\n")
    assert len(text.splitlines()) == text.count("\n"), "no line that only some editors see"
    assert not set(text) & set("\ufeff\x7f\x07\x1b")
