"""What keeps a text from being YAML, in words for people who write flows."""

from __future__ import annotations

import yaml

_QUOTES = "Put text that begins with a quote, a bracket or a brace wholly in quotes, or below “|”."
_BLOCKS = (
    "“|” and “>” begin text that stands on the lines below; only a comment may follow them on their own line. Put text "
    "that begins with them, and an expression that begins with “!”, in quotes."
)
_COLONS = (
    "A colon with a space behind it does not belong here. Put text that has one in quotes, or check the indentation."
)
_ESCAPES = (
    'In double quotes a backslash is followed by n, t, ", \\, x, u or a few more. Single quotes take it as it is.'
)
_TABS = "Lines are indented with spaces, never with tabs."
_DIGITS = "\\x is followed by two, \\u by four and \\U by eight hexadecimal digits."

# What libyaml or PyYAML's own parser say (a part of it), and what a person needs to hear. The first that fits counts.
_SENTENCES = (
    ("mapping values are not allowed", _COLONS),
    ("sequence entries are not allowed", "A list can't begin here. Its dashes stand on the lines below the key."),
    ("mapping keys are not allowed", "A “?” with a space behind it can't begin text. Put the text in quotes."),
    ("comment or line break", _BLOCKS),
    ("chomping or indentation indicators", _BLOCKS),
    ("indentation indicator", "The digit behind “|” says how far the text is indented, 1 to 9."),
    ("tab character", _TABS),
    ("unexpected document indicator", "The text that is open here has no closing quote before “---” or “...”."),
    ("unknown escape", _ESCAPES),
    ("hexdecimal", _DIGITS),
    ("hexadecimal", _DIGITS),
    ("Unicode character escape", "This escape stands for half a character. Write the character itself."),
    ("',' or ']'", "A comma or a closing “]” is missing. Put text with brackets or commas in quotes."),
    ("',' or '}'", "A comma or a closing “}” is missing. Put text with braces or commas in quotes."),
    ("'-' indicator", "The next entry of the list should begin here with “- ”; check the indentation."),
    ("expected key", f"The next field should begin here, as in “name: …”; check the indentation. {_QUOTES}"),
    ("<block end>", f"The next field or entry should begin here; check the indentation. {_QUOTES}"),
    ("expected ':'", "A colon is missing behind the key. Check the indentation of text in several lines."),
    ("<document start>", f"The flow has ended before this. Check the indentation. {_QUOTES}"),
    ("alphabetic or numeric", "Text that begins with “*” or “&” stands in quotes."),
    ("node content", "A value is missing, or begins with a character that text can't begin with. Put it in quotes."),
    ("YAML document", "The file says that it is written for another version of YAML. Leave out the line with %YAML."),
    ("directive", "A line that begins with “%” is a directive in YAML. Put text that begins with “%” in quotes."),
    ("tag", "Text that begins with “!” is a tag in YAML. Put it in quotes."),
    ("unexpected ':'", "A colon can't stand here. Put text that has one in quotes."),
)


def explain_syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[str, int | None]:
    """A sentence for an error of the parser, and the offset of the place that is to blame."""
    problem = error.problem or ""
    offset = error.problem_mark.index if error.problem_mark else None
    opened = error.context_mark.index if error.context_mark else None
    if "unexpected end of stream" in problem:
        return "The text that begins here has no closing quote.", offset if opened is None else opened
    if "cannot start any token" in problem:
        character = text[offset : offset + 1] if offset is not None else ""
        return _TABS if character == "\t" else f"Text can't begin with “{character}”. Put it in quotes.", offset
    sentence = next((words for part, words in _SENTENCES if part in problem), f"This is no YAML: {problem}.")
    if opened is not None and "',' or" in problem:
        sentence += f" What has to be closed began in line {text.count(chr(10), 0, opened) + 1}."
    return sentence, offset
