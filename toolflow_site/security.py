"""Headers that every answer carries, whoever gives it; the content security policy comes from ``django-csp``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.conf import settings
from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_only_middleware

_UNUSED_FEATURES = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation",
    "gyroscope", "hid", "magnetometer", "microphone", "midi", "payment", "picture-in-picture",
    "publickey-credentials-get", "screen-wake-lock", "serial", "usb", "xr-spatial-tracking",
)  # fmt: skip

HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    # Browsers that don't know the policy's “frame-ancestors”.
    "X-Frame-Options": "DENY",
    # Addresses hold what runs were searched for: other sites don't learn them.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{feature}=()" for feature in _UNUSED_FEATURES),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Those that are the same everywhere."""
UNKEPT = "private, no-store"
"""For answers that say nothing about caches: what somebody may see now is for nobody else, and not for later."""


def list_headers(*, is_secure: bool) -> Mapping[str, str]:
    """What an answer carries unless a view said otherwise; ``is_secure`` tells whether it goes through TLS.

    Django’s own middleware knows ``Strict-Transport-Security``, too, but not for what is answered outside of it; and
    browsers heed that header only where it comes through TLS.
    """
    if not is_secure or not settings.SECURE_HSTS_SECONDS:
        return HEADERS
    subdomains = "; includeSubDomains" if settings.SECURE_HSTS_INCLUDE_SUBDOMAINS else ""
    return {**HEADERS, "Strict-Transport-Security": f"max-age={settings.SECURE_HSTS_SECONDS}{subdomains}"}


@sync_only_middleware
def add_headers(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that stands outside of all that may answer: pages, the API, static files and errors.

    It is synchronous like all around it: see ``runs.pages.viewer_time_zone``.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        for name, value in list_headers(is_secure=request.is_secure()).items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", UNKEPT)
        return response

    return answer


@sync_only_middleware
def refuse_strange_forms(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that answers 400 to forms in another encoding than UTF-8, which no browser sends.

    Django takes any codec of Python for a form with files, and fails over those that are none of text (``hex``).
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        charset = (request.content_params or {}).get("charset", "utf-8")
        if request.content_type == "multipart/form-data" and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise BadRequest("A form is not UTF-8")
        return get_response(request)

    return answer
