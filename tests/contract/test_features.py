"""What the product offers is still there: ``features.yaml`` lists it; see there."""

from __future__ import annotations

import pytest

from tests.contract.collecting import COLLECTORS, collect, load_features

FEATURES = load_features()


@pytest.mark.parametrize("kind", COLLECTORS)
def test_no_feature_to_keep_is_missing(kind: str) -> None:
    there = set(collect(kind))
    missing = [feature for feature, entry in FEATURES[kind].items() if entry["mark"] == "keep" and feature not in there]
    assert not missing, f"{kind} that features.yaml keeps and the code no longer has:\n" + "\n".join(missing)


def test_every_entry_is_of_a_known_kind_and_kept_or_cut() -> None:
    assert list(FEATURES) == list(COLLECTORS)
    wrong = [
        feature
        for features in FEATURES.values()
        for feature, entry in features.items()
        if entry.keys() != {"mark", "test"} or entry["mark"] not in {"keep", "cut"}
    ]
    assert wrong == []
