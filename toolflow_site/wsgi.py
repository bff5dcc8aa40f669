"""The dashboard as a WSGI application, for tests and tools.

What serves people is ``toolflow_site.asgi``: streams of events, what proxies say of clients and bounds of bodies are
there.
"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")

application = get_wsgi_application()
