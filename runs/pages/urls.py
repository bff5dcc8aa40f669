"""Addresses of the pages."""

from django.urls import path

from runs.pages import (
    account,
    api_tokens,
    attempt_output,
    attempt_parts,
    audit_log,
    bulk,
    comparing,
    exporting,
    flow_pages,
    live,
    overview,
    saved_views,
    start,
    views,
    webhooks,
    workers,
)

app_name = "runs"

urlpatterns = [
    *overview.urls,
    *flow_pages.urls,
    *comparing.urls,
    *exporting.urls,
    *bulk.urls,
    *saved_views.urls,
    *attempt_output.urls,
    *api_tokens.urls,
    *webhooks.urls,
    *audit_log.urls,
    *account.urls,
    path("runs/", views.show_runs, name="list"),
    path("runs/new/", start.choose_flow, name="choose-flow"),
    path("runs/new/<slug:flow_name>/", start.start_run, name="start"),
    path("workers/", workers.show_workers, name="workers"),
    path("workers/live", workers.show_worker_changes, name="workers-live"),
    path("runs/<number:run_id>/", views.show_run, name="page"),
    path("runs/<number:run_id>.json", views.show_run_document, name="document"),
    path("runs/<number:run_id>/live", live.show_run_changes, name="live"),
    path("runs/<number:run_id>/cancel/", start.cancel_run, name="cancel"),
    path(
        "runs/<number:run_id>/steps/<number:step>/attempts/<number:number>.json",
        views.show_attempt_document,
        name="attempt-document",
    ),
    path(
        "runs/<number:run_id>/steps/<number:step>/attempts/<number:number>/<str:part>/",
        attempt_parts.show_attempt_part,
        name="attempt-part",
    ),
]
