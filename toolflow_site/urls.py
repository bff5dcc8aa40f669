"""Where addresses lead."""

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path, re_path

from runs.api.base import show_nothing
from runs.health import show_alive, show_ready
from runs.metrics import show_metrics
from toolflow_site.sign_in import SignInView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/login/", SignInView.as_view(), name="login"),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("api/v1/", include("runs.api.urls")),
    # Else “/api/v1” would lead to “/api/v1/”, as a page does, and what another version has to a page.
    re_path(r"^api(?:/|$)", show_nothing),
    # Answered by the middleware “identify_requests” before; listed because access and features are checked by routes.
    path("healthz", show_alive, name="healthz"),
    path("readyz", show_ready, name="readyz"),
    path("metrics", show_metrics, name="metrics"),
    path("", include("runs.pages.urls")),
]

if settings.TOOLFLOW_OIDC_ISSUER:
    from toolflow_site.openid import BeginView, ReturnView

    urlpatterns += [
        path("accounts/oidc/", BeginView.as_view(), name="oidc_authentication_init"),
        path("accounts/oidc/callback/", ReturnView.as_view(), name="oidc_authentication_callback"),
    ]

handler400 = "toolflow_site.errors.show_bad_request"
handler403 = "toolflow_site.errors.show_refusal"
handler404 = "toolflow_site.errors.show_missing"
handler500 = "toolflow_site.errors.show_fault"
