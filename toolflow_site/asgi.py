"""The dashboard as an ASGI application."""

import os
import warnings

from django.core.asgi import get_asgi_application
from django.db import connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")

application = get_asgi_application()

# Under ASGI every request has a thread of its own, and a connection that outlives it is never used again: kept open,
# they pile up until the database refuses more.
for _database in connections.settings.values():
    _database["CONN_MAX_AGE"] = 0
    # A pool lends them instead: opening one for each request costs more than most pages.
    if _database["ENGINE"] == "django.db.backends.postgresql":
        _database.setdefault("OPTIONS", {}).setdefault("pool", {"min_size": 1, "max_size": 20, "timeout": 10})

# WhiteNoise hands out files as synchronous iterators; they are small, and Django reads them as a whole.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
