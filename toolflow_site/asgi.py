"""The dashboard as an ASGI application."""

import gc
import os
import sys

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.urls import get_resolver

NO_START = 3
"""The exit status by which a process tells uvicorn and gunicorn that another one would not start either."""

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
try:
    django.setup(set_prefix=False)
except ImproperlyConfigured as error:
    # Whichever server loads this: a wrong setting is no traceback, and trying again mends nothing.
    sys.stderr.write(f"{error}\n")
    sys.exit(NO_START)

# Django has to be set up first.
from toolflow_site.edge import build_edge  # noqa: E402
from toolflow_site.production import find_static_problem  # noqa: E402
from toolflow_site.request_threads import DashboardHandler, KeptThreads  # noqa: E402

if _problem := find_static_problem(settings):
    sys.stderr.write(f"{_problem}\n")
    sys.exit(NO_START)

for _database in connections.settings.values():
    if _database["ENGINE"] == "django.db.backends.postgresql":
        # A pool bounds how many connections there are, and finds those that were cut.
        _database["CONN_MAX_AGE"] = 0
        _database.setdefault("OPTIONS", {}).setdefault("pool", {"min_size": 1, "max_size": 24, "timeout": 10})
    else:
        # A file is not cut off: what a thread opened serves it to its end.
        _database["CONN_MAX_AGE"] = None

application = build_edge(
    KeptThreads(DashboardHandler()),
    trusted_proxies=settings.TOOLFLOW_TRUSTED_PROXIES,
    url_prefix=settings.TOOLFLOW_URL_PREFIX,
    most_bytes=settings.TOOLFLOW_MAX_BODY,
    session_cookie=settings.SESSION_COOKIE_NAME,
)

# Addresses lead to all of our modules. What is loaded now stays to the end: looking through it for garbage again and
# again made single answers slow.
get_resolver().reverse_dict.keys()
gc.collect()
gc.freeze()
