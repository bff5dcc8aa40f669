"""``python -m tests.site.production_answers``: asks the installation of its environment through ``toolflow_site.asgi``.

Requests come as a JSON list from standard input (``method``, ``path``, ``headers``, ``content``, ``peer``); what was
answered goes to standard output. Cookies are kept from one request to the next, as browsers do.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from django.conf import settings

# It has a page that fails.
settings.ROOT_URLCONF = "tests.security.test_headers"

from toolflow_site.asgi import application  # noqa: E402  # reads the settings


async def ask(request: dict[str, Any], cookies: httpx2.Cookies) -> dict[str, Any]:
    transport = httpx2.ASGITransport(application, client=(request["peer"], 5000), raise_app_exceptions=False)
    # To the server a proxy speaks without TLS; cookies are kept as if by the browser before it.
    async with httpx2.AsyncClient(transport=transport, base_url="http://flows.example.com") as client:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()), **request["headers"]}
        content = request["content"].replace("CSRF_TOKEN", cookies.get("csrftoken") or "")
        answer = await client.request(request["method"], request["path"], headers=headers, content=content)
    cookies.update(dict(answer.cookies))
    return {
        "status": answer.status_code,
        "headers": dict(answer.headers),
        "cookies": answer.headers.get_list("set-cookie"),
    }


async def main() -> None:
    cookies = httpx2.Cookies()
    json.dump([await ask(request, cookies) for request in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
