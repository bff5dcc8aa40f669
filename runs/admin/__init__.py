"""The history of runs in the admin, to read and to filter; and users, tokens and limits, which staff change."""

from django.contrib import admin
from django.contrib.auth.models import User
from django_q.models import Failure, OrmQ, Schedule, Success

from flows.models import Flow, FlowVersion
from runs.admin.accounts import AccountAdmin, ApiTokenAdmin
from runs.admin.endpoint_admin import WebhookEndpointAdmin
from runs.admin.flows import RunCountingVersionAdmin, RunningFlowAdmin
from runs.admin.limits import RateLimitAdmin
from runs.admin.runs import AttemptAdmin, IssueAdmin, RunAdmin
from runs.models import ApiToken, Attempt, Issue, RateLimit, Run, WebhookEndpoint

admin.site.register(Run, RunAdmin)
admin.site.register(Attempt, AttemptAdmin)
admin.site.register(Issue, IssueAdmin)
admin.site.register(RateLimit, RateLimitAdmin)
admin.site.register(ApiToken, ApiTokenAdmin)
admin.site.register(WebhookEndpoint, WebhookEndpointAdmin)
# Flows know nothing of runs; what runs know of them is added here.
admin.site.unregister([Flow, FlowVersion])
admin.site.register(Flow, RunningFlowAdmin)
admin.site.register(FlowVersion, RunCountingVersionAdmin)

# Users belong to Django; which groups they may have, and who may make superusers, is ours to say.
admin.site.unregister(User)
admin.site.register(User, AccountAdmin)

# The queue's own rows are not history, and its schedules name functions to call: neither is for the browser.
for _model in (Failure, OrmQ, Schedule, Success):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)
