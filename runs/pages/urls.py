"""Addresses of the pages."""

from runs.pages import (
    account,
    audit_log,
    backtests,
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
    samples,
    search_box,
    start,
    webhooks,
)

app_name = "runs"

urlpatterns = [
    *overview.urls,
    *samples.urls,
    *run_list.urls,
    *flow_list.urls,
    *flow_page.urls,
    *flow_version.urls,
    *backtests.urls,
    *issues.urls,
    *compare.urls,
    *exporting.urls,
    *bulk.urls,
    *search_box.urls,
    *guides.urls,
    *run_page.urls,
    *model_request.urls,
    *start.urls,
    *webhooks.urls,
    *audit_log.urls,
    *account.urls,
]
