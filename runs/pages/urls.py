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
    guides,
    live,
    overview,
    run_list,
    saved_views,
    search_box,
    start,
    views,
    webhooks,
)

app_name = "runs"

urlpatterns = [
    *overview.urls,
    *run_list.urls,
    *flow_pages.urls,
    *comparing.urls,
    *exporting.urls,
    *bulk.urls,
    *saved_views.urls,
    *search_box.urls,
    *guides.urls,
    *attempt_output.urls,
    *api_tokens.urls,
    *webhooks.urls,
    *audit_log.urls,
    *account.urls,
    path("runs/new/", start.choose_flow, name="choose-flow"),
    path("runs/new/<slug:flow_name>/", start.start_run, name="start"),
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
