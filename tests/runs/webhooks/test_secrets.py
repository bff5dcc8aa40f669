"""By what receivers know that a message is ours: which secrets there are, and what is signed with which."""

from __future__ import annotations

import base64
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command

from flows.models import Flow
from flows.webhook_secret import WebhookSigner
from runs.models import Run, WebhookDelivery
from runs.rollup import count_ended_runs
from runs.webhooks.signing import find_signers
from runs.webhooks.tasks import send_due
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from tests.runs.webhooks.deliveries import come_due, make_delivery, make_ended_run, set_flow_address
from tests.runs.webhooks.receiver import Received, Receiver
from tests.site.test_settings import read_settings

pytestmark = pytest.mark.django_db

OLD, NEW = "an-old-key-0123456789-abcdefghijklmnopqrstuvwxyz", "a-new-key-zyxwvutsrqponmlkjihgfedcba-9876543210"


def print_secret(*arguments: str) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("webhook_secret", *arguments, stdout=out)
    return out.getvalue().removesuffix("\n")


def of_flow(run_or_version: Any) -> str:
    return WebhookSigner.of_flow(run_or_version.flow_id).secret


def send(receiver: Receiver, delivery: WebhookDelivery) -> Received:
    """Send that one; gives what arrived."""
    come_due(delivery)
    send_due()
    return receiver.find_last(delivery.message_id)


class TestTheCommand:
    def test_the_installation_and_each_flow_have_a_secret_that_stays(self) -> None:
        names = [make_version(make_page_flow(name=name)).flow.name for name in ("one", "two")]
        asked: list[tuple[str, ...]] = [(), *(("--flow", name) for name in names)]
        printed = [print_secret(*arguments) for arguments in asked]
        assert len(set(printed)) == 3
        assert printed == [print_secret(*arguments) for arguments in asked]
        for secret in printed:
            assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32

    def test_other_installations_have_others(self, settings: Any) -> None:
        secret = print_secret()
        settings.SECRET_KEY = "another installation's key, of forty characters"
        assert print_secret() != secret
        assert settings.SECRET_KEY not in secret

    def test_an_unknown_flow_is_refused(self) -> None:
        with pytest.raises(CommandError, match="There is no flow “nowhere”"):
            print_secret("--flow", "nowhere")


class TestWhoSigns:
    def test_an_address_given_with_a_run_gets_the_signature_of_the_installation(self, receiver: Receiver) -> None:
        delivery = make_delivery(receiver.url())
        received = send(receiver, delivery)
        assert received.is_signed_with(print_secret())
        assert not received.is_signed_with(of_flow(delivery.run))

    def test_the_address_of_a_flow_gets_the_signature_of_that_flow_alone(self, receiver: Receiver) -> None:
        version, other = make_version(make_page_flow(name="one")), make_version(make_page_flow(name="two"))
        set_flow_address(version, receiver.url())
        make_ended_run(version)
        count_ended_runs()
        received = send(receiver, WebhookDelivery.objects.get())
        assert received.is_signed_with(of_flow(version))
        assert not any(map(received.is_signed_with, [of_flow(other), print_secret()]))

    def test_a_run_that_names_the_address_of_another_flow_is_not_signed_by_that_flow(self, receiver: Receiver) -> None:
        """An operator knows where flows send. Runs of another flow that are told there are known for what they are."""
        victim, used = make_version(make_page_flow(name="victim")), make_version(make_page_flow(name="used"))
        set_flow_address(victim, receiver.url())
        received = send(receiver, make_delivery(receiver.url(), used, status="succeeded"))
        assert not received.is_signed_with(of_flow(victim))

    def test_an_address_that_run_and_flow_share_gets_one_message_with_both_signatures(self, receiver: Receiver) -> None:
        version = make_version()
        set_flow_address(version, receiver.url())
        received = send(receiver, make_delivery(receiver.url(), version))
        assert len(receiver.received) == 1
        assert received.is_signed_with(print_secret()) and received.is_signed_with(of_flow(version))

    def test_a_retry_has_the_same_signature_though_the_flow_has_another_address_by_then(
        self, receiver: Receiver
    ) -> None:
        receiver.reply(500, 200)
        version = make_version()
        set_flow_address(version, receiver.url())
        make_ended_run(version)
        count_ended_runs()
        delivery = WebhookDelivery.objects.get()
        for address in ("https://example.com/other", ""):
            set_flow_address(version, address)
            received = send(receiver, delivery)
            assert received.is_signed_with(of_flow(version)) and not received.is_signed_with(print_secret())

    def test_addresses_that_are_too_long_to_be_kept_whole_are_still_the_run_s_own(self) -> None:
        run = make_ended_run(webhook_url="https://example.com/" + "ü" * 1_900)
        count_ended_runs()
        assert find_signers(WebhookDelivery.objects.get()) == [WebhookSigner.of_installation()]
        assert Flow.objects.get(pk=run.flow_id).webhook_url == ""


class TestAnotherSecretKey:
    def test_receivers_change_over_while_the_old_key_still_counts(self, receiver: Receiver, settings: Any) -> None:
        settings.SECRET_KEY = OLD
        before = print_secret()
        settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
        after = print_secret()
        assert after not in ("", before)
        delivery = make_delivery(receiver.url())
        received = send(receiver, delivery)
        assert received.is_signed_with(before) and received.is_signed_with(after)
        assert len(received.headers["webhook-signature"].split()) == 2

        settings.SECRET_KEY_FALLBACKS = []
        assert Run.objects.get(pk=delivery.run_id).webhook_deliveries.update(state="waiting") == 1
        received = send(receiver, delivery)
        assert received.is_signed_with(after) and not received.is_signed_with(before)


class TestTheSetting:
    def test_without_it_nothing_private_is_allowed(self, tmp_path: Path) -> None:
        assert read_settings(tmp_path)["TOOLFLOW_WEBHOOK_ALLOW"] == []

    def test_hosts_addresses_and_networks_are_allowed_with_their_ports(self, tmp_path: Path) -> None:
        text = (
            "localhost, *.internal.example.com:8080,10.20.0.0/16:*, 192.0.2.7:80, fd00::/8, [::1], [fd00::/8]:9000, "
            "hooks_a.example.com.:443"
        )
        found = read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=text)
        assert found["TOOLFLOW_WEBHOOK_ALLOW"] == [part.strip() for part in text.split(",")]

    @pytest.mark.parametrize(
        "target",
        [
            "https://example.com", "example.com:", "example.com:22", "example.com:99999", "example.com:http", "*",
            ":80", "ex*mple.com", "10.0.0.0/99", "10.0.0.0/8:22", "1.2.3", "1.2.3:80", "a b", "[::1", "[::1]8080",
            "[10.0.0.1]:80",
        ],
    )  # fmt: skip
    def test_what_is_no_target_is_refused(self, tmp_path: Path, target: str) -> None:
        with pytest.raises(ImproperlyConfigured) as caught:
            read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=f"localhost,{target}")
        assert f"TOOLFLOW_WEBHOOK_ALLOW names “{target}”; it must list hosts" in str(caught.value)

    @pytest.mark.parametrize(
        "target",
        ["169.254.169.254:80", "169.254.0.0/16", "[fd00:ec2::254]:80", "metadata.google.internal:80", "0xa9fea9fe"],
    )
    def test_none_of_them_may_be_where_clouds_keep_secrets(self, tmp_path: Path, target: str) -> None:
        with pytest.raises(ImproperlyConfigured) as caught:
            read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=f"localhost,{target}")
        assert f"TOOLFLOW_WEBHOOK_ALLOW names “{target}”" in str(caught.value)
