"""What the editor's page learns of models, and the flow as text."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from flows.admin.language import describe_model
from flows.models import Flow, FlowDraft
from flows.publishing import publish_flow
from tests.engine.builders import make_flow, make_step

SORTED = {"type": "object", "properties": {"b": {"type": "string"}, "1": {"type": "string"}}}
SORTED = {**SORTED, "required": ["b", "1"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("model", "price", "flex", "refused", "temperature"),
    [
        ("gpt-5-mini", "$0.25 in, $2.00 out", "$0.125 in, $1.00 out", "none", "GPT-5 takes no temperature."),
        ("gpt-5.1", "$1.25 in, $10.00 out", "$0.625 in, $5.00 out", "minimal", "only with the effort “none”"),
        ("gpt-4o", "$2.50 in, $10.00 out", "", "low", ""),
    ],
)
def test_prices_and_refusals_of_a_model(model: str, price: str, flex: str, refused: str, temperature: str) -> None:
    known = describe_model(model)
    assert (known["tiers"][""], known["tiers"]["flex"]) == (price, flex)
    assert "take" in known["efforts"][refused]
    assert temperature in known["temperature"]


def test_an_unknown_model_refuses_nothing_and_an_unknown_provider_is_told() -> None:
    known = describe_model("someones-own-model")
    assert (known["tiers"][""], known["efforts"], known["temperature"]) == ("", {}, "")
    assert "“nowhere”" in describe_model("nowhere:model")["note"]


@pytest.mark.django_db
class TestText:
    """The document as the text of a flow file, and back."""

    @staticmethod
    def ask(client: Client, flow: Flow, **question: object) -> dict[str, object]:
        posted = {"flow": flow.pk, "base_version": 1, **question}
        answer = client.post(reverse("admin:flows_flow_check"), posted, content_type="application/json")
        assert answer.status_code == 200
        return dict(answer.json())

    @pytest.fixture
    def flow(self) -> Flow:
        return publish_flow(spec=make_flow(make_step(output_schema=SORTED), title="Sorted")).flow

    def test_it_is_the_same_flow_in_both(self, admin_client: Client, flow: Flow) -> None:
        document = admin_client.get(reverse("admin:flows_flow_change", args=[flow.pk])).context["editor"]["document"]
        # Browsers sort keys that are numbers: a schema is text, in which its order stands.
        assert document["steps"][0]["output_schema"].index('"b"') < document["steps"][0]["output_schema"].index('"1"')
        answer = self.ask(admin_client, flow, document=document, as_text=True)
        assert (answer["problems"], answer["is_changed"]) == ([], False)
        back = self.ask(admin_client, flow, text=answer["text"])
        assert (back["document"], back["is_changed"]) == (document, False)
        assert not FlowDraft.objects.exists()

    def test_problems_of_a_text_have_their_lines(self, admin_client: Client, flow: Flow) -> None:
        answer = self.ask(
            admin_client, flow, text="name: sorted\nsteps:\n- name: One\n  max_retries: -1\n  compute: '{}'\n"
        )
        assert [problem["line"] for problem in answer["problems"]] == [4]  # type: ignore[attr-defined]
        assert answer["document"] is not None
        nothing = self.ask(admin_client, flow, text="steps: [")
        assert nothing["document"] is None
        assert nothing["problems"]
