"""What the product offers, collected from its code: the features that ``features.yaml`` lists by kind.

``python -m tests.contract.collecting`` writes that list again: marks and tests that are in it stay, what is new is
marked ``keep``, and what was collected before and is gone stays listed too.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
APPS = ("flows", "runs", "toolflow_site")
FEATURES = Path(__file__).with_name("features.yaml")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PAGE_METHODS = ("GET", "POST")
ANY_METHOD = "ANY"
"""Stands for the methods of a view that does not say which ones it takes, as those of the admin."""


def load_features() -> dict[str, list[str]]:
    """The features that ``features.yaml`` lists, by kind."""
    return yaml.safe_load(FEATURES.read_text(encoding="utf-8")) if FEATURES.exists() else {}


def collect_urls() -> Iterator[str]:
    """Each method × path of pages, admin, sign-in and probes; of the API what its description leaves out.

    Parts of a path are written without their names: ``GET /runs/<int>/``.
    """
    from django.urls import get_resolver

    described = {path for _, path, _ in _list_operations()} | _list_closed_admin_pages()
    for pattern, view in _walk_patterns(get_resolver().url_patterns, "/"):
        path = re.sub(r"<(?:(\w+):)?\w+>", lambda match: f"<{match[1] or 'str'}>", pattern)
        if path not in described and re.sub(r"<\w+>", "{}", path) not in described:
            methods = {ANY_METHOD} if path.startswith("/admin/") else _list_methods(view)
            yield from (f"{method} {path}" for method in (*PAGE_METHODS, ANY_METHOD) if method in methods)
    # Those of single sign-on are there if it is set up.
    yield from sorted({f"{ANY_METHOD} /{text}" for text in _list_texts() if re.fullmatch(r"accounts/oidc/\S*", text)})


def _list_closed_admin_pages() -> set[str]:
    """Addresses of the admin that never open, or only lead to another one."""
    from django.contrib import admin

    closed = set()
    for model, model_admin in admin.site._registry.items():
        rows = f"/admin/{model._meta.label_lower.replace('.', '/')}/"
        request = _ask_as_superuser()
        closed |= {f"{rows}<path>/"}
        closed |= set() if model_admin.has_add_permission(request) else {f"{rows}add/"}
        closed |= set() if model_admin.has_delete_permission(request) else {f"{rows}<path>/delete/"}
    return closed


def _ask_as_superuser() -> Any:
    from django.contrib.auth.models import User
    from django.test import RequestFactory

    request = RequestFactory().get("/admin/")
    request.user = User(username="admin", is_staff=True, is_superuser=True, is_active=True)
    return request


def _walk_patterns(patterns: Iterable[Any], prefix: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for entry in patterns:
        path = prefix + _write_route(entry.pattern)
        if hasattr(entry, "url_patterns"):
            yield from _walk_patterns(entry.url_patterns, path)
        else:
            yield path, entry.callback


def _write_route(pattern: Any) -> str:
    if hasattr(pattern, "_route"):
        return str(pattern)
    text = re.sub(r"\(\?P<(\w+)>[^()]*(?:\([^()]*\)[^()]*)*\)", r"<\1>", str(pattern))
    text = re.sub(r"\(\?:[^()]*\)", "…", text)
    return text.replace("\\Z", "").replace("\\", "").strip("^$")


def _list_methods(view: Callable[..., Any]) -> set[str]:
    """The methods that a view takes: those of its class, or those that ``require_http_methods`` was given."""
    view_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if view_class is not None:
        allowed = {name.upper() for name in view_class.http_method_names if hasattr(view_class, name)}
        return allowed & {*METHODS}
    inner: Any = view
    while inner is not None:
        if inspect.isfunction(inner):
            methods = inspect.getclosurevars(inner).nonlocals.get("request_method_list")
            if methods:
                return {*methods} & {*METHODS}
        inner = getattr(inner, "__wrapped__", None)
    return {ANY_METHOD}


@cache
def _list_operations() -> list[tuple[str, str, Mapping[str, Any]]]:
    """The operations of the API: method, path with ``{}`` for its parts, and description."""
    from drf_spectacular.settings import spectacular_settings

    document = spectacular_settings.DEFAULT_GENERATOR_CLASS().get_schema(request=None, public=True)
    return [
        (method.upper(), "/api/v1" + re.sub(r"\{\w+\}", "{}", path), operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method.upper() in METHODS
    ]


def collect_operations() -> Iterator[str]:
    """Each operation of the API: ``GET /api/v1/runs/{}``."""
    return (f"{method} {path}" for method, path, _ in _list_operations())


def collect_api_parameters() -> Iterator[str]:
    """Each parameter of the API that is no part of a path: ``GET /api/v1/runs ?flow``, or its header."""
    signs = {"query": "?", "header": "header ", "cookie": "cookie "}
    for method, path, operation in _list_operations():
        for parameter in operation.get("parameters", ()):
            if parameter.get("in") in signs:
                yield f"{method} {path} {signs[parameter['in']]}{parameter['name']}"


def collect_page_parameters() -> Iterator[str]:
    """Query parameters of pages: those that a page lists under a name, and all that are read from ``request.GET``."""
    from runs.filters import PARAMETERS
    from runs.pages import audit_log, flow_page, run_list

    listed = {
        "/runs/": [*PARAMETERS, *run_list.PAGING],
        "/flows/<slug>/": flow_page.NAMES,
        "/trail/": [*audit_log.FILTERS, "before", "after"],
    }
    for page, names in listed.items():
        yield from (f"{page} ?{name}" for name in names)
    for node in _parse_code():
        match node:
            case ast.Call(func=ast.Attribute(value=asked, attr="get"), args=[ast.Constant(value=str(name)), *_]):
                pass
            case ast.Subscript(value=asked, slice=ast.Constant(value=str(name))):
                pass
            case _:
                continue
        if isinstance(asked, ast.Attribute) and asked.attr == "GET":
            yield f"?{name}"


def collect_form_fields() -> Iterator[str]:
    """Fields of a flow's document and settings, of the forms of the admin, and those that templates of pages name."""
    from django import forms
    from django.apps import apps
    from django.contrib import admin

    from flows.admin.settings_page import FlowSettingsForm
    from flows.engine.spec import AuditSpec, FlowSpec, StepSpec

    settings = FlowSettingsForm.base_fields
    editor = {
        "flow": [*FlowSpec.model_fields, *settings],
        "step": StepSpec.model_fields,
        "audit": AuditSpec.model_fields,
    }
    for name, fields in editor.items():
        yield from (f"editor {name}: {field}" for field in fields if field not in {"steps", "audits"})
    request = _ask_as_superuser()
    for model, model_admin in admin.site._registry.items():
        label = model._meta.label_lower
        if label != "flows.flow" and model_admin.has_change_permission(request):
            new: type[forms.BaseForm] = model_admin.get_form(request)
            yield from (f"admin {label}: {field}" for field in new.base_fields)
            changed = model_admin.get_form(request, obj=apps.get_model(label)())
            yield from (f"admin {label}: {field}" for field in changed.base_fields)
        form: Any = getattr(model_admin, "filters", None)
        filters: Iterable[Any] = getattr(form, "base_fields", None) or model_admin.list_filter or ()
        names = [getattr(entry, "parameter_name", entry) for entry in filters]
        names += ["search"] if model_admin.search_fields else []
        yield from (
            f"admin list {label}: {name}" for name in [*names, *(f"action {a}" for a in model_admin.actions or ())]
        )
    yield from (f"start run: {name}" for name in _list_run_options())
    for area, text in read_templates():
        for tag in re.findall(r"<(?:input|select|textarea)\b[^>]*", text):
            if match := re.search(r'\sname="([\w-]+)"', tag):
                yield f"{area} name={match[1]}"


def _list_run_options() -> Iterable[str]:
    from runs.pages import start

    return start.OPTIONS


def collect_controls() -> Iterator[str]:
    """Controls in templates: forms by method and action, live parts by address, and buttons by what names them.

    A button is named by its ``name`` and ``value``, its ``id``, a ``data-`` attribute or the text on it.
    """
    for area, text in read_templates():
        for tag in re.findall(r"<form\b(?:{%.*?%}|[^>])*", text):
            method = re.search(r'method="(\w+)"', tag)
            for url in re.findall(r"{% (?:url|address) '([\w:-]+)'", tag):
                yield f"{area} form {method[1] if method else 'get'} {url}"
        for url in re.findall(r"""(?:hx-get|hx-post|formaction|href)="{% (?:url|address) '([\w:-]+)'""", text):
            yield f"{area} link {url}"
        yield from (f"{area} button {name}" for name, _ in list_buttons(text))


def list_buttons(text: str) -> Iterator[tuple[str, str]]:
    """The buttons of a template: their names, and the words on them."""
    for tag, content in re.findall(r"<button\b((?:{%.*?%}|{{.*?}}|[^>])*)>(.*?)</button>", text, re.DOTALL):
        words = " ".join(re.sub(r"{%.*?%}|{{.*?}}|<[^>]*>", " ", content).split())
        yield _name_button(tag) or f"“{words}”", words


def _name_button(tag: str) -> str:
    attributes = dict(re.findall(r'\s([\w-]+)="((?:[^"{]|{[^{%])*)"', tag))
    flags = re.findall(r"\s(data-[\w-]+)(?=[\s>]|$)", tag)
    if "name" in attributes:
        return " ".join(filter(None, [f"name={attributes['name']}", attributes.get("value", "")]))
    named = [f"{name}={value}" for name, value in attributes.items() if name.startswith("data-") or name == "id"]
    if "theme-toggle" in attributes.get("class", ""):
        return "theme-toggle"
    return next(iter([*named, *flags]), "")


def read_templates() -> Iterator[tuple[str, str]]:
    """All templates of our own, each with “admin” or “pages”."""
    for folder in (ROOT / "templates", *(ROOT / app / "templates" for app in APPS)):
        for path in sorted(folder.rglob("*.html")):
            yield ("admin" if "admin" in path.relative_to(folder).parts else "pages"), path.read_text(encoding="utf-8")


def collect_commands() -> Iterator[str]:
    """Management commands of our own with their arguments: ``run_flow``, ``run_flow <flow>``, ``run_flow --input``."""
    from django.core.management import get_commands, load_command_class

    for name, app in sorted(get_commands().items()):
        if app not in APPS:
            continue
        parser: Any = load_command_class(str(app), name).create_parser("manage.py", name)
        yield name
        general = {"help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color"}
        for action in parser._actions:
            if action.dest not in general | {"skip_checks"}:
                yield f"{name} {max(action.option_strings, key=len, default=f'<{action.dest}>')}"


def collect_client_commands() -> Iterator[str]:
    """Commands of ``toolflow`` with their arguments: ``toolflow runs --limit -n``, ``toolflow show <run_id>``."""
    import typer

    from runs.client.__main__ import app

    def walk(command: Any, name: str) -> Iterator[str]:
        yield name
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            options = " ".join([*parameter.opts, *parameter.secondary_opts])
            yield f"{name} {options if is_option else f'<{parameter.name}>'}"
        for inner, its in getattr(command, "commands", {}).items():
            yield from walk(its, f"{name} {inner}")

    return walk(typer.main.get_command(app), "toolflow")


_RECORD_SETTINGS = """
import os, sys
class Recorder(dict):
    asked = set()
    def __getitem__(self, name): self.asked.add(name); return super().__getitem__(name)
    def get(self, name, default=None): self.asked.add(name); return super().get(name, default)
    def __contains__(self, name): self.asked.add(name); return super().__contains__(name)
    def setdefault(self, name, default=None): self.asked.add(name); return super().setdefault(name, default)
os.environ = Recorder(os.environ)
import toolflow_site.settings
print(*sorted(Recorder.asked), sep="\\n")
"""


def collect_settings() -> Iterator[str]:
    """The environment variables that the settings ask for when they are read, and those of ``toolflow`` itself.

    Variables of a model provider are written with ``<NAME>``.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "TOOLFLOW_ENV_FILE": os.devnull,
        "TOOLFLOW_DATA_DIR": os.environ["TOOLFLOW_DATA_DIR"],
        "TOOLFLOW_PROVIDERS": "example",
        "TOOLFLOW_PROVIDER_EXAMPLE_BASE_URL": "http://localhost:8080/v1",
        "TOOLFLOW_OIDC_ISSUER": "https://id.example.com",
        "TOOLFLOW_OIDC_CLIENT_ID": "toolflow",
        "TOOLFLOW_OIDC_CLIENT_SECRET": "secret",
        "TOOLFLOW_OIDC_DOMAINS": "example.com",
    }
    done = subprocess.run(
        [sys.executable, "-c", _RECORD_SETTINGS], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"The settings can't be read:\n{done.stderr}")
    for name in done.stdout.split():
        if re.match(r"TOOLFLOW_|OPENAI_|DATABASE_|PROMETHEUS_|REDIS_", name):
            yield name.replace("_EXAMPLE_", "_<NAME>_")
    yield from ({"TOOLFLOW_URL", "TOOLFLOW_TOKEN", "PROMETHEUS_MULTIPROC_DIR"} & _list_texts())


def collect_metrics() -> Iterator[str]:
    """Names of metrics as they are declared, without what Prometheus adds (``_total``, ``_bucket``)."""
    for node in _parse_code():
        match node:
            case ast.Call(args=[ast.Constant(value=str(name)), _, *_]) if re.fullmatch(r"toolflow_[a-z_]+", name):
                yield name


def collect_permissions() -> Iterator[str]:
    """Permissions with the first access group that has them: ``runs.add_run from Operator``."""
    from runs.access_groups import ACCESS_GROUPS

    known: set[str] = set()
    for group, permissions in ACCESS_GROUPS.items():
        yield group
        yield from (f"{permission} from {group}" for permission in sorted(permissions - known))
        known |= permissions


def collect_scopes() -> Iterator[str]:
    """Scopes of API tokens."""
    from django.apps import apps

    choices: Any = apps.get_model("runs.ApiToken")._meta.get_field("scope").choices
    return (str(value) for value, _ in choices)


@cache
def _parse_code() -> list[ast.AST]:
    """Calls, subscripts and constants in all modules of the product but migrations."""
    paths = [path for app in APPS for path in sorted((ROOT / app).rglob("*.py")) if "migrations" not in path.parts]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    return [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Subscript | ast.Constant)
    ]


@cache
def _list_texts() -> frozenset[str]:
    constants = (node.value for node in _parse_code() if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))


COLLECTORS: Mapping[str, Callable[[], Iterator[str]]] = {
    "urls": collect_urls,
    "api operations": collect_operations,
    "api parameters": collect_api_parameters,
    "page parameters": collect_page_parameters,
    "form fields": collect_form_fields,
    "controls": collect_controls,
    "management commands": collect_commands,
    "toolflow commands": collect_client_commands,
    "settings": collect_settings,
    "metrics": collect_metrics,
    "permissions and groups": collect_permissions,
    "api scopes": collect_scopes,
}
"""What is listed, by kind."""


def collect(kind: str) -> list[str]:
    """The features of that kind that the code has now, each once, in their order."""
    return list(dict.fromkeys(COLLECTORS[kind]()))


def main() -> None:
    """Add to ``features.yaml`` what is new."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    before = load_features()
    found = {kind: list(dict.fromkeys([*collect(kind), *before.get(kind, ())])) for kind in COLLECTORS}
    text = yaml.safe_dump(found, width=1000, allow_unicode=True, sort_keys=False)
    FEATURES.write_text(_HEAD + text, encoding="utf-8")


_HEAD = """\
# What the product offers, by kind. None may go missing; see test_features.py.
# Written by “python -m tests.contract.collecting”, which adds what is new; what is gone on purpose people take out.
"""


if __name__ == "__main__":
    main()
