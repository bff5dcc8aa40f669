"""Bodies that ask for something to be done to many runs, and the shapes of what becomes of it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from flows.engine.json_values import describe_type
from runs.api.body_fields import WholeNumberField, WordField, format_value
from runs.api.filter_fields import FiltersField, WrittenFiltersField
from runs.api.reading import StrictSerializer
from runs.api.schema_parts import LIMIT, PageSerializer
from runs.api.schemas.base import AMOUNT_PATTERN as COST
from runs.bulk_actions.requesting import MOST_CHOSEN, MOST_STARTED
from runs.models import BulkKind, WorkState
from runs.models.long_work import MOST_NOTES
from runs.prepared_select import LARGEST_NUMBER

TAGS = ["Bulk actions"]
VERSIONS = ["same", "live"]

_PLACE = {"type": "integer", "minimum": 1}
_FOLLOW = "Follow `next` and `previous` rather than make it."
ACTION_PAGING = [
    LIMIT,
    OpenApiParameter("before", _PLACE, description=f"Only what is older than the action of this number. {_FOLLOW}"),
    OpenApiParameter("after", _PLACE, description=f"Only what is newer than the action of this number. {_FOLLOW}"),
]
LOCATION = OpenApiParameter(
    "Location",
    OpenApiTypes.URI,
    OpenApiParameter.HEADER,
    description="Where the bulk action is read.",
    response=[202],
)
RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    OpenApiTypes.INT,
    OpenApiParameter.HEADER,
    description="Seconds after which it may be read again; only while it is at work.",
    response=[200, 202],
)

_FILTERS = "All runs that match these filters, which are those of `listRuns`; none of them means all runs."


@extend_schema_field({"type": "string", "enum": list(BulkKind.values)})
class KindField(WordField):
    """What is done to the runs."""

    words = list(BulkKind.values)


@extend_schema_field({"type": "string", "enum": VERSIONS})
class RunVersionField(WordField):
    """On which version runs are run again."""

    words = VERSIONS


@extend_schema_field(
    {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": MOST_CHOSEN}
)
class RunNumbersField(serializers.Field[list[int], Any, Any, Any]):
    """Numbers of runs."""

    default_error_messages = {"null": "This must not be null."}

    def to_internal_value(self, data: Any) -> list[int]:
        """The numbers, each once. Raises ``ValidationError`` that says what is wrong with each."""
        if not isinstance(data, list):
            raise serializers.ValidationError(f"This must be a list of run numbers, got {describe_type(data)}.")
        if not 1 <= len(data) <= MOST_CHOSEN:
            raise serializers.ValidationError(
                f"1 to {MOST_CHOSEN:,} runs can be chosen one by one, these are {len(data):,}; for more, send filters."
            )
        wrong: dict[Any, Any] = {
            index: [f"This must be the number of a run, got {format_value(item)}."]
            for index, item in enumerate(data)
            if not _is_run_number(item)
        }
        if wrong:
            raise serializers.ValidationError(wrong)
        return list(dict.fromkeys(int(item) for item in data))

    def to_representation(self, value: Any) -> Any:
        """The same."""
        return value


def _is_run_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value == int(value) and 1 <= value < LARGEST_NUMBER


class BulkChoiceSerializer(StrictSerializer):
    """What would be done to which runs: `runs` or `filters`, one of the two."""

    kind = KindField(
        help_text="`cancel`: those that have not ended. `run_again`: those that have, each as a new run with the same "
        "input."
    )
    runs = RunNumbersField(required=False, help_text="The numbers of the runs.")
    filters = FiltersField(required=False, help_text=_FILTERS)
    newest = WholeNumberField(
        required=False,
        min_value=0,
        max_value=LARGEST_NUMBER - 1,
        help_text="With `filters`: runs of a higher number are not meant, such as those that began after a preview, "
        "which tells it. Without it all that there are now.",
    )


class NewBulkActionSerializer(BulkChoiceSerializer):
    """What is to be done to which runs: `runs` or `filters`, one of the two."""

    version = RunVersionField(
        required=False,
        help_text="For `run_again`: `same` (if left out) for the version that each run had, `live` for the live one.",
    )
    most = WholeNumberField(
        required=False,
        min_value=1,
        max_value=MOST_STARTED,
        help_text=f"For `run_again` with `filters`: how many runs may be started, the newest first; {MOST_STARTED:,} "
        "if it is left out.",
    )


class BulkPreviewSerializer(serializers.Serializer[Any]):
    """What a bulk action would come to. Nothing was done."""

    kind = serializers.ChoiceField(list(BulkKind.values), help_text="What would be done.")
    count = serializers.IntegerField(min_value=0, help_text="Runs to which it would be done, as far as were counted.")
    is_exact = serializers.BooleanField(help_text="False if there may be more than `count`.")
    left_out = serializers.IntegerField(
        min_value=0,
        help_text="Chosen runs to which nothing would be done: they have ended, or have not, or there are none.",
    )
    newest = serializers.IntegerField(
        min_value=0, help_text="The highest run number that is meant: send it along, and later runs are not."
    )
    cost = serializers.RegexField(
        COST, allow_null=True, help_text="USD that the counted runs came to; null if that is not known of any."
    )
    unpriced = serializers.IntegerField(min_value=0, help_text="Attempts of theirs at an unknown price.")
    simulated = serializers.IntegerField(
        min_value=0, help_text="How many of the counted were answered by the simulated model."
    )
    examples = serializers.ListField(
        child=serializers.IntegerField(min_value=1), help_text="The numbers of the newest of them, at most 10."
    )


class BulkNoteSerializer(serializers.Serializer[Any]):
    """Why a run was left out."""

    run = serializers.IntegerField(help_text="The number of the run.")
    is_failure = serializers.BooleanField(help_text="Whether it was not possible; else there was nothing to do.")
    sentence = serializers.CharField(help_text="Why.")


class BulkActionSerializer(serializers.Serializer[Any]):
    """Something that is done to many runs, and how far it is."""

    id = serializers.IntegerField(min_value=1, help_text="The number of the bulk action.")
    kind = serializers.ChoiceField(list(BulkKind.values), help_text="What is done to the runs.")
    status = serializers.ChoiceField(
        list(WorkState.values), help_text="`waiting` and `working` go on; `stopped` is what somebody wanted."
    )
    problem = serializers.CharField(allow_null=True, help_text="Why it failed, in a sentence.")
    run_count = serializers.IntegerField(
        allow_null=True, help_text="How many runs were chosen one by one; null for all that match."
    )
    filters = WrittenFiltersField(
        allow_null=True, help_text="The filters of the runs that are meant; null where runs were chosen."
    )
    version = serializers.ChoiceField(
        VERSIONS, allow_null=True, help_text="On which version runs are run again; null for `cancel`."
    )
    most = serializers.IntegerField(allow_null=True, help_text="How many runs it may start; null for `cancel`.")
    label = serializers.CharField(  # type: ignore[assignment]  # a declared field, not what the class has of that name
        allow_null=True, help_text="A label of the runs that it starts, by which a list finds them; null for `cancel`."
    )
    percent = serializers.IntegerField(min_value=0, max_value=100, help_text="How much is behind.")
    done = serializers.IntegerField(min_value=0, help_text="Runs to which it was done.")
    skipped = serializers.IntegerField(min_value=0, help_text="Runs where there was nothing to do.")
    failed = serializers.IntegerField(min_value=0, help_text="Runs where it was not possible.")
    started_by = serializers.CharField(allow_null=True, help_text="The user who asked for it.")
    created_at = serializers.DateTimeField(help_text="UTC.")
    started_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null until the first batch is done.")
    ended_at = serializers.DateTimeField(allow_null=True, help_text="UTC; null while it goes on.")
    url = serializers.URLField(help_text="Where it is read.")
    page_url = serializers.URLField(help_text="Where people see it.")
    started_runs_url = serializers.URLField(
        allow_null=True, help_text="The list of the runs that it started; null for `cancel`."
    )


class BulkActionPageSerializer(PageSerializer):
    """A page of bulk actions."""

    items = serializers.ListField(child=BulkActionSerializer(), help_text="The newest first, without notes.")


class WholeBulkActionSerializer(BulkActionSerializer):
    """A bulk action with why runs were left out."""

    notes = serializers.ListField(
        child=BulkNoteSerializer(), help_text=f"The first {MOST_NOTES} runs that were left out, each with the reason."
    )
