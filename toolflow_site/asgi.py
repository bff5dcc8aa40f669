"""The dashboard as an ASGI application."""

import gc
import os
import warnings

import django
from django.db import connections
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
django.setup(set_prefix=False)

from toolflow_site.request_threads import DashboardHandler, KeptThreads  # noqa: E402  # Django has to be set up first

for _database in connections.settings.values():
    if _database["ENGINE"] == "django.db.backends.postgresql":
        # A pool bounds how many connections there are, and finds those that were cut.
        _database["CONN_MAX_AGE"] = 0
        _database.setdefault("OPTIONS", {}).setdefault("pool", {"min_size": 1, "max_size": 20, "timeout": 10})
    else:
        # A file is not cut off: what a thread opened serves it to its end.
        _database["CONN_MAX_AGE"] = None

# WhiteNoise hands out files as synchronous iterators; they are small, and Django reads them as a whole.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

application = KeptThreads(DashboardHandler())

# Addresses lead to all of our modules. What is loaded now stays to the end: looking through it for garbage again and
# again made single answers slow.
get_resolver().reverse_dict.keys()
gc.collect()
gc.freeze()
