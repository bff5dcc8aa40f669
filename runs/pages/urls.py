"""Addresses of the pages."""

from django.urls import path

from runs.pages import (
    account,
    audit_log,
    bulk,
    compare,
    exporting,
    flow_list,
    flow_page,
    flow_version,
    guides,
    issues,
    model_request,
    overview,
    run_list,
    run_page,
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
    *flow_list.urls,
    *flow_page.urls,
    *flow_version.urls,
    *issues.urls,
    *compare.urls,
    *exporting.urls,
    *bulk.urls,
    *saved_views.urls,
    *search_box.urls,
    *guides.urls,
    *run_page.urls,
    *model_request.urls,
    *webhooks.urls,
    *audit_log.urls,
    *account.urls,
    path("runs/new/", start.choose_flow, name="choose-flow"),
    path("runs/new/<slug:flow_name>/", start.start_run, name="start"),
    path("runs/<number:run_id>.json", views.show_run_document, name="document"),
    path("runs/<number:run_id>/cancel/", start.cancel_run, name="cancel"),
    path(
        "runs/<number:run_id>/steps/<number:step>/attempts/<number:number>.json",
        views.show_attempt_document,
        name="attempt-document",
    ),
]
