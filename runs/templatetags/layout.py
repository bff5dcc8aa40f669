"""Template tags for what is the same on every page, whoever looks at it."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.base import FilterExpression, Node, NodeList, Parser, TextNode, Token
from django.template.context import Context
from django.template.defaulttags import LoadNode, URLNode
from django.template.library import SimpleNode
from django.templatetags.static import StaticNode
from django.urls import get_script_prefix

from runs.pages.addresses import find_address

register = template.Library()

register.simple_tag(find_address, name="address")


@register.tag
def fixed(parser: Parser, token: Token) -> FixedNode:
    """``{% fixed %}…{% endfixed %}``: drawn once, then the same text on every page.

    It may hold text, addresses and icons, all of them with fixed arguments; anything else is a ``TemplateSyntaxError``.
    """
    nodes = parser.parse(("endfixed",))
    parser.delete_first_token()
    for node in nodes:
        if not _is_fixed(node):
            tag = node.token.contents if node.token else type(node).__name__
            raise template.TemplateSyntaxError(f"“{tag}” may differ between pages: it can’t stand in “fixed”.")
    return FixedNode(nodes)


class FixedNode(Node):
    """Text that is drawn once for each path that the site stands below."""

    # Nothing in it is looked for, as is done for blocks whenever a page is rendered.
    child_nodelists = ()

    def __init__(self, nodes: NodeList) -> None:
        self._nodes = nodes
        self._drawn: dict[str, str] = {}

    def render(self, context: Context) -> str:
        """The text."""
        prefix = get_script_prefix()
        if prefix not in self._drawn:
            # Without anything that is known of this request.
            self._drawn[prefix] = self._nodes.render(Context())
        return self._drawn[prefix]


def _is_fixed(node: Any) -> bool:
    if isinstance(node, TextNode | LoadNode):
        return True
    if isinstance(node, URLNode):
        return not node.asvar and _are_fixed(node.view_name, *node.args, *node.kwargs.values())
    if isinstance(node, StaticNode):
        return node.varname is None and _are_fixed(node.path)
    return (
        type(node) is SimpleNode
        and not node.takes_context
        and node.target_var is None
        and _are_fixed(*node.args, *node.kwargs.values())
    )


def _are_fixed(*expressions: FilterExpression) -> bool:
    return all(
        not expression.filters and getattr(expression.var, "lookups", None) is None for expression in expressions
    )
