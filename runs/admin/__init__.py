"""The history of runs in the admin: to read and to filter, nothing to change."""

from django.contrib import admin

from flows.models import FlowVersion
from runs.admin.attempt_admin import AttemptAdmin, IssueAdmin
from runs.admin.run_admin import RunAdmin
from runs.admin.version_admin import RunCountingVersionAdmin
from runs.models import Attempt, Issue, Run

admin.site.register(Run, RunAdmin)
admin.site.register(Attempt, AttemptAdmin)
admin.site.register(Issue, IssueAdmin)
# Flows know nothing of runs; what runs know of versions is added here.
admin.site.unregister(FlowVersion)
admin.site.register(FlowVersion, RunCountingVersionAdmin)
