"""How the OpenAPI document describes what requests about flows hold and are answered."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from flows.engine.differences import ChangeKind, Subject
from flows.engine.history import Outcome, Severity
from flows.engine.spec import MAX_STEPS, NAME_PATTERN, FlowSpec
from flows.portability import NOTE_LENGTH
from runs.api import flow_shape  # noqa: F401  # describes the documents of flows
from runs.api.flow_reading import YAML
from runs.api.reading import StrictSerializer
from runs.api.schema_parts import PageSerializer

TAGS = ["Flows"]

FLOW_BODY: dict[str, Any] = {"application/json": FlowSpec, YAML: FlowSpec}
"""The document of a flow, as JSON or as a flow file."""

_DEFINITION: Any = FlowSpec
_NAME = {"type": "string", "pattern": NAME_PATTERN, "maxLength": 100}
_LISTED = {"type": "string", "minLength": 1, "maxLength": 200}
_PLACE = {"type": "integer", "minimum": 1}


def _query(name: str, schema: Any, description: str) -> OpenApiParameter:
    return OpenApiParameter(name, schema, description=description)


NAME = OpenApiParameter("name", _NAME, OpenApiParameter.PATH, description="The name of the flow.")
NUMBER = OpenApiParameter("number", _PLACE, OpenApiParameter.PATH, description="The number of the version.")
FLOW_BEFORE = _query(
    "before", _LISTED, "Only flows before this name. Follow `next` and `previous` rather than make it."
)
FLOW_AFTER = _query("after", _LISTED, "Only flows after this name. Follow `next` and `previous` rather than make it.")
VERSION_BEFORE = _query("before", _PLACE, "Only versions older than that of this number.")
VERSION_AFTER = _query("after", _PLACE, "Only versions newer than that of this number.")
ARCHIVED = _query(
    "archived",
    {"type": "string", "enum": ["true", "false", "all"], "default": "false"},
    "Only flows in the archive, only others, or all.",
)
INPUT_SCHEMA = _query("input_schema", OpenApiTypes.BOOL, "Whether each flow comes with its input schema.")
NOTE = _query("note", {"type": "string", "maxLength": NOTE_LENGTH}, "What the new version brings, in a few words.")
MAKE_LIVE = _query(
    "make_live", OpenApiTypes.BOOL, "Whether new runs use it from now on. The first version of a flow is always live."
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of the flow as it was read: if somebody has saved it or made another version live "
    "meanwhile, it is left alone (412). The digest of its latest version in double quotes will do, too.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="`*` creates the flow only if there is none of this name (else 412).",
)
ETAG = OpenApiParameter(
    "ETag",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    response=[200, 201],
    description="Stands for the flow as it is read now, whatever of it changes: send it back as `If-Match`. "
    "A flow that was never published has none.",
)
VERSION_ETAG = OpenApiParameter(
    "ETag",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    response=[200],
    description="Stands for this answer; JSON and YAML have one each.",
)
LOCATION = OpenApiParameter(
    "Location", OpenApiTypes.URI, OpenApiParameter.HEADER, response=[201], description="The address of the new flow."
)
FORMAT = _query("format", {"type": "string", "enum": ["json", "yaml"]}, "Wins over the header `Accept`.")
AGAINST = _query(
    "against",
    {"type": "string", "pattern": "^([0-9]{1,9}|live)$"},
    "The number of the version to compare with, or `live`; without it the version before.",
)


class FlowSerializer(serializers.Serializer[Any]):
    """A flow."""

    name = serializers.CharField(help_text="What it is called in addresses; never changes.")
    title = serializers.CharField(help_text="What it is called on pages.")
    description = serializers.CharField(allow_null=True, help_text="What it does, for people who start it.")
    live_version = serializers.IntegerField(allow_null=True, help_text="The number of the version that new runs use.")
    latest_version = serializers.IntegerField(allow_null=True, help_text="The number of its newest version.")
    is_archived = serializers.BooleanField(help_text="Whether no new runs can be started.")
    created_at = serializers.DateTimeField(help_text="When it was first saved.")
    updated_at = serializers.DateTimeField(help_text="When it was last saved, archived, or got another live version.")


class ListedFlowSerializer(FlowSerializer):
    """A flow in a list."""

    input_schema = serializers.DictField(
        required=False,
        allow_null=True,
        help_text="JSON Schema of the input that the live version takes; only with `input_schema=true`.",
    )


class FlowPageSerializer(PageSerializer):
    """A page of flows."""

    items = ListedFlowSerializer(many=True, help_text="The flows of this page, by name.")


class FlowVersionSerializer(serializers.Serializer[Any]):
    """A version of a flow. It never changes."""

    flow = serializers.CharField(help_text="The name of the flow.")
    number = serializers.IntegerField(help_text="Counted from 1.")
    is_live = serializers.BooleanField(help_text="Whether new runs use it.")
    digest = serializers.CharField(help_text="SHA-256 of the definition: the same for the same definition.")
    note = serializers.CharField(allow_null=True, help_text="What it brings, in its author’s words.")
    created_by = serializers.CharField(allow_null=True, help_text="The name of the user who made it.")
    created_at = serializers.DateTimeField(help_text="When it was made.")


class VersionPageSerializer(PageSerializer):
    """A page of versions."""

    items = FlowVersionSerializer(many=True, help_text="The versions of this page, the newest first.")


@extend_schema_field(_DEFINITION)
class _DefinitionField(serializers.DictField):
    pass


class WholeVersionSerializer(FlowVersionSerializer):
    """A version of a flow with its definition."""

    document = _DefinitionField(help_text="The definition, as a flow file holds it.")


class WholeFlowSerializer(FlowSerializer):
    """A flow with its definitions."""

    live = WholeVersionSerializer(allow_null=True, help_text="The version that new runs use.")
    latest = WholeVersionSerializer(allow_null=True, help_text="The newest version.")


class StoredFlowSerializer(WholeFlowSerializer):
    """A flow that was sent."""

    made_version = serializers.IntegerField(
        allow_null=True,
        help_text="The number of the version that this request made; null if the latest was the same already.",
    )


class FieldChangeSerializer(serializers.Serializer[Any]):
    """A field that differs."""

    field = serializers.CharField(help_text="Its name in the document.")
    kind = serializers.ChoiceField([kind.value for kind in ChangeKind], help_text="What became of it.")
    old = serializers.JSONField(allow_null=True, help_text="The old value; null where nothing was set.")
    new = serializers.JSONField(allow_null=True, help_text="The new value; null where nothing is set.")
    notes = serializers.ListField(child=serializers.CharField(), help_text="The difference in words.")


class AuditChangeSerializer(serializers.Serializer[Any]):
    """What became of an audit."""

    subject = serializers.ChoiceField([subject.value for subject in Subject], help_text="What this is about.")
    kind = serializers.ChoiceField([kind.value for kind in ChangeKind], help_text="What became of it.")
    name = serializers.CharField(help_text="The new name, or the old one of what was removed.")
    place = serializers.IntegerField(
        allow_null=True, help_text="Counted from 1: the new place, or the old one of what was removed."
    )
    notes = serializers.ListField(child=serializers.CharField(), help_text="What is no field, such as a move.")
    fields = FieldChangeSerializer(many=True, help_text="The fields that differ.")  # type: ignore[assignment]  # the document's own word


class FlowChangeSerializer(AuditChangeSerializer):
    """What became of the flow’s own fields, or of a step."""

    audits = AuditChangeSerializer(many=True, help_text="What became of the step’s audits.")


class FlowDifferenceSerializer(serializers.Serializer[Any]):
    """The difference of two versions of a flow."""

    flow = serializers.CharField(help_text="The name of the flow.")
    summary = serializers.CharField(help_text="All changes in one short line.")
    changes = FlowChangeSerializer(many=True, help_text="Empty if both have the same digest.")

    def get_fields(self) -> dict[str, Any]:
        """Also the two numbers: ``from`` is no name in Python."""
        return {
            "from": serializers.IntegerField(help_text="The number of the old version."),
            "to": serializers.IntegerField(help_text="The number of the new version."),
            **super().get_fields(),
        }


class WarningSerializer(serializers.Serializer[Any]):
    """What is allowed, and most likely not meant."""

    detail = serializers.CharField(help_text="What may be wrong and what would be right, in a sentence.")
    pointer = serializers.CharField(help_text="JSON pointer into the document.")


class ValidFlowSerializer(serializers.Serializer[Any]):
    """What storing a flow would do that has no mistakes."""

    valid = serializers.BooleanField(help_text="true: mistakes are answered with 422.")
    name = serializers.CharField(help_text="The name of the flow.")
    digest = serializers.CharField(help_text="SHA-256 of the definition.")
    would_make_version = serializers.IntegerField(
        allow_null=True,
        help_text="The number of the version that storing it would make; null if the latest is the same already.",
    )
    warnings = WarningSerializer(many=True, help_text="What is allowed, and most likely not meant.")


class _StrictInteger(serializers.IntegerField):
    """Numbers only: text is a mistake, even where it looks like one."""

    def to_internal_value(self, data: Any) -> int:
        """The number."""
        if type(data) is not int:
            self.fail("invalid")
        return int(super().to_internal_value(data))


class _ObjectField(serializers.DictField):
    default_error_messages = {"not_a_dict": "An object is expected here."}


@extend_schema_field(_DEFINITION)
class _FlowField(_ObjectField):
    pass


class PreviewSerializer(StrictSerializer):
    """A step of a flow, and what it works on: either `run`, or `input` and `outputs`."""

    document = _FlowField(help_text="The definition of the flow; it need not be stored.")
    step = _StrictInteger(min_value=1, max_value=MAX_STEPS, help_text="The number of the step, counted from 1.")
    run = _StrictInteger(
        required=False, min_value=1, help_text="The number of an earlier run of the flow, whose results the step finds."
    )
    after_attempt = _StrictInteger(
        required=False,
        min_value=0,
        help_text="Of how many attempts that the run made of the step the next one is told; 0 by default.",
    )
    input = _ObjectField(required=False, help_text="The input of the flow.")
    outputs = serializers.DictField(
        child=_ObjectField(allow_null=True),
        required=False,
        help_text="The outputs of the steps before this one, by number; a step left out, or null, had none.",
    )


class TryAuditsSerializer(PreviewSerializer):
    """A step of a flow, what it works on, and what is to be audited: either `output`, or `attempt` of `run`."""

    output = _ObjectField(required=False, help_text="An output of the step, as the model would give it.")
    attempt = _StrictInteger(
        required=False, min_value=1, help_text="The number of an attempt of the step in `run`, to audit its output."
    )


class TriedIssueSerializer(serializers.Serializer[Any]):
    """What is wrong with an output. Fields that an audit adds are kept."""

    code = serializers.CharField(help_text="What kind of finding it is, for programs.")
    severity = serializers.ChoiceField([severity.value for severity in Severity], help_text="How much it matters.")
    description = serializers.CharField(help_text="What is wrong, for people and for the model that tries again.")
    audit = serializers.CharField(help_text="The audit that raised it; empty for ToolFlow itself.", allow_blank=True)
    path = serializers.CharField(allow_null=True, help_text="JSON pointer into the output.")
    context = serializers.DictField(help_text="What belongs to it.")  # type: ignore[assignment]  # the document's word
    suggestions = serializers.ListField(child=serializers.CharField(), help_text="What would be right.")


class _TriedStepSerializer(serializers.Serializer[Any]):
    step = serializers.IntegerField(help_text="The number of the step, counted from 1.")
    name = serializers.CharField(help_text="The name of the step.")
    notes = serializers.ListField(
        child=serializers.CharField(), help_text="What fits badly in what the step works on, a sentence each."
    )


class PreviewAnswerSerializer(_TriedStepSerializer):
    """What the next attempt of a step begins with."""

    request = serializers.DictField(allow_null=True, help_text="The exact body that a model step would send.")
    output = serializers.DictField(allow_null=True, help_text="What a local step computes.")
    issues = TriedIssueSerializer(many=True, help_text="What had to be changed in `output` so that it can be stored.")
    problem = serializers.CharField(
        allow_null=True, help_text="Why there is neither, such as an expression that fails."
    )


class TriedAuditSerializer(serializers.Serializer[Any]):
    """What one audit says."""

    name = serializers.CharField(help_text="What the audit is called.")
    fail_at = serializers.ChoiceField(
        [*(severity.value for severity in Severity), "never"], help_text="The severity that fails it."
    )
    passed = serializers.BooleanField(help_text="Whether none of its issues reaches `fail_at`.")
    issue_count = serializers.IntegerField(help_text="How many issues it raised.")


class VerdictSerializer(_TriedStepSerializer):
    """What would become of an output."""

    outcome = serializers.ChoiceField(
        [Outcome.PASSED.value, Outcome.FAILED.value, Outcome.INVALID.value], help_text="What the attempt would be."
    )
    output = serializers.DictField(allow_null=True, help_text="The output after its sanitizer.")
    raw_output = serializers.JSONField(allow_null=True, help_text="What came in, where the sanitizer changed it.")
    failure_reason = serializers.CharField(allow_null=True, help_text="Why it did not pass, by the step’s own rule.")
    issues = TriedIssueSerializer(many=True, help_text="All that is wrong with it.")
    audits = TriedAuditSerializer(many=True, help_text="Empty where the output doesn’t fit its schema.")
