"""The dashboard as an ASGI application."""

import os
import sys
from typing import Any

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.urls import get_resolver
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

NO_START = 3
"""The exit status by which a process reports to uvicorn that another one would not start either."""

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
try:
    django.setup(set_prefix=False)
except ImproperlyConfigured as error:
    # A wrong setting is not a traceback, and starting again doesn't help.
    sys.stderr.write(f"{error}\n")
    sys.exit(NO_START)

# Django has to be set up first.
from toolflow_site.production import find_static_problem  # noqa: E402
from toolflow_site.request_handler import Application, RequestHandler, SubPath  # noqa: E402

if _problem := find_static_problem(settings):
    sys.stderr.write(f"{_problem}\n")
    sys.exit(NO_START)


def _build_application() -> Application:
    """The site behind what proxies say of clients, believed of ``TOOLFLOW_TRUSTED_PROXIES`` only.

    Behind it ``request.META["REMOTE_ADDR"]`` is the client's address and ``request.is_secure()`` whether it used TLS.
    """
    site: Application = RequestHandler()
    if settings.TOOLFLOW_URL_PREFIX:
        site = SubPath(site, settings.TOOLFLOW_URL_PREFIX)
    if settings.TOOLFLOW_TRUSTED_PROXIES:
        proxied: Any = ProxyHeadersMiddleware(site, trusted_hosts=settings.TOOLFLOW_TRUSTED_PROXIES)  # type: ignore[arg-type]  # ASGI, less narrow
        site = proxied
    return site


for _database in connections.settings.values():
    if _database["ENGINE"] == "django.db.backends.postgresql":
        # A pool bounds how many connections there are, and finds those that were cut.
        _database["CONN_MAX_AGE"] = 0
        _database.setdefault("OPTIONS", {}).setdefault("pool", {"min_size": 1, "max_size": 24, "timeout": 10})

application = _build_application()

# Addresses lead to all of our modules: they are loaded before the first request.
get_resolver().reverse_dict.keys()
