import pytest
import torch

from ltnb.models.heads import CosineClassifier, Projector


def test_cosine_logits_by_hand() -> None:
    classifier = CosineClassifier(2, 2, scale=30.0)
    with torch.no_grad():
        classifier.weight.copy_(torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
    logits = classifier(torch.tensor([[0.0, 7.0]]))
    torch.testing.assert_close(logits, 30 * torch.tensor([[0.0, 0.5**0.5]]))


def test_cosine_logits_do_not_see_lengths() -> None:
    classifier = CosineClassifier(5, 3, scale=30.0)
    x = torch.randn(4, 5)
    before = classifier(x)
    with torch.no_grad():
        classifier.weight.mul_(torch.tensor([[0.1], [1.0], [50.0]]))
    torch.testing.assert_close(classifier(9 * x), before)


@pytest.mark.parametrize("training", [True, False])
def test_projections_are_unit_rows(training: bool) -> None:
    projector = Projector(6, 16, 4).train(training)
    z = projector(torch.randn(9, 6))
    assert z.shape == (9, 4)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(9))
