"""Where addresses lead."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from runs.health import show_alive, show_ready

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("_nested_admin/", include("nested_admin.urls")),
    path("api/v1/", include("runs.api.urls")),
    path("healthz", show_alive, name="healthz"),
    path("readyz", show_ready, name="readyz"),
    path("", include("runs.pages.urls")),
]
