"""ToolFlow's settings with the plain admin beside its own pages."""

from toolflow_site.settings import *  # noqa: F403  # a settings module extends another so

ROOT_URLCONF = "benchmarks.plain_admin"
