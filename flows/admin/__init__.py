"""The admin of flows: the editor, and the versions that saving makes."""

from django.contrib import admin

from flows.admin.flow_admin import FlowAdmin
from flows.admin.version_admin import FlowVersionAdmin
from flows.models import Flow, FlowVersion

admin.site.site_title = "ToolFlow"
admin.site.site_header = "ToolFlow"
admin.site.index_title = "Administration"
admin.site.empty_value_display = "—"
# The bar at the top leads everywhere; the list of all models is one click away.
admin.site.enable_nav_sidebar = False

admin.site.register(Flow, FlowAdmin)
admin.site.register(FlowVersion, FlowVersionAdmin)
