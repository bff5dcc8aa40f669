"""Addresses of the pages."""

from django.urls import path
from django.views.generic import RedirectView

from runs.pages import start, views, workers

app_name = "runs"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="runs:list"), name="home"),
    path("runs/", views.show_runs, name="list"),
    path("runs/new/", start.choose_flow, name="choose-flow"),
    path("runs/new/<slug:flow_name>/", start.start_run, name="start"),
    path("workers/", workers.show_workers, name="workers"),
    path("workers/live", workers.show_worker_changes, name="workers-live"),
    path("runs/<int:run_id>/", views.show_run, name="page"),
    path("runs/<int:run_id>.json", views.show_run_document, name="document"),
    path("runs/<int:run_id>/live", views.show_run_changes, name="live"),
    path("runs/<int:run_id>/cancel/", start.cancel_run, name="cancel"),
    path(
        "runs/<int:run_id>/steps/<int:step>/attempts/<int:number>.json",
        views.show_attempt_document,
        name="attempt-document",
    ),
    path(
        "runs/<int:run_id>/steps/<int:step>/attempts/<int:number>/<str:part>/",
        views.show_attempt_part,
        name="attempt-part",
    ),
]
