"""What the product offers is still there: ``features.yaml`` lists it; see there."""

from __future__ import annotations

import pytest

from tests.contract.collecting import COLLECTORS, collect, load_features

FEATURES = load_features()


@pytest.mark.parametrize("kind", COLLECTORS)
def test_no_feature_is_missing(kind: str) -> None:
    there = set(collect(kind))
    missing = [feature for feature in FEATURES[kind] if feature not in there]
    assert not missing, f"{kind} of features.yaml that the code no longer has:\n" + "\n".join(missing)


def test_every_entry_is_of_a_known_kind() -> None:
    assert list(FEATURES) == list(COLLECTORS)
