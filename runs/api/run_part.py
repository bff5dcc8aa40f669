"""What endpoints below one run share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import Http404
from rest_framework.request import Request

from runs.api.access import SEE_RUNS, Need
from runs.api.view import ApiView
from runs.models import Run
from runs.prepared_select import LARGEST_NUMBER


class RunPart(ApiView):
    """An endpoint whose address begins with a run. Numbers that no row can have lead nowhere."""

    needs: ClassVar[Mapping[str, Need]] = {"GET": SEE_RUNS}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let nobody through to what can’t be there. Raises ``Http404``."""
        super().initial(request, *args, **kwargs)
        if any(number > LARGEST_NUMBER for number in kwargs.values()):
            raise Http404


def check_run(run_id: int) -> None:
    """Raise ``Http404`` if there is no such run. One query."""
    if not Run.objects.filter(pk=run_id).exists():
        raise Http404
