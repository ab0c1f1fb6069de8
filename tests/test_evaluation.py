"""Accuracies, and what is made of wrong labels, by hand."""

import pytest
import torch

from ltnb.evaluation import accuracies, memorisation


def test_accuracy_by_group_by_hand() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    predictions = torch.tensor([0, 1, 1, 1, 0, 2])
    found = accuracies(predictions, labels, torch.tensor([500, 50, 5]))
    assert found == pytest.approx(
        {"accuracy": 4 / 6, "accuracy_many": 0.5, "accuracy_medium": 1.0, "accuracy_few": 0.5}
    )


def test_an_empty_group_is_absent_and_not_zero() -> None:
    found = accuracies(torch.tensor([0]), torch.tensor([0]), torch.tensor([500, 300]))
    assert set(found) == {"accuracy", "accuracy_many"}


def test_memorisation_by_hand() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    clean_labels = torch.tensor([0, 1, 1, 0, 0, 2])
    predictions = torch.tensor([0, 0, 2, 0, 1, 2])
    found = memorisation(predictions, labels, clean_labels)
    assert found == pytest.approx({"train_accuracy_clean": 3 / 6, "memorised": 1 / 3, "recovered": 1 / 3})
    assert memorisation(predictions, labels, labels) == pytest.approx({"train_accuracy_clean": 3 / 6})
