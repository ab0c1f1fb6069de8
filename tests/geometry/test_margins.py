import math

import pytest
import torch
from torch.testing import assert_close

from ltnb.geometry import class_margins, regular_simplex, sample_margins


def by_loops(features, labels, weight):
    """The margin of each sample, one cosine at a time."""

    def cosine(a, b):
        return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))

    margins = []
    for x, y in zip(features.double(), labels.tolist(), strict=True):
        cosines = [cosine(w, x) for w in weight.double()]
        margins.append(cosines[y] - max(c for j, c in enumerate(cosines) if j != y))
    return margins


def test_by_loops(tailed):
    weight = torch.randn(tailed.num_classes, 4, generator=torch.Generator().manual_seed(1))
    expected = by_loops(tailed.features, tailed.labels, weight)
    assert sample_margins(tailed.features, tailed.labels, weight).tolist() == pytest.approx(expected, abs=1e-10)
    smallest = [
        min(margin for margin, y in zip(expected, tailed.labels.tolist(), strict=True) if y == k)
        for k in range(tailed.num_classes)
    ]
    assert class_margins(tailed.features, tailed.labels, weight).tolist() == pytest.approx(smallest, abs=1e-10)
    assert min(smallest) < 0 < max(expected)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_largest_at_a_simplex(num_classes):
    simplex = regular_simplex(num_classes, num_classes)
    labels = torch.arange(num_classes).repeat_interleave(2)
    margins = class_margins(3 * simplex[labels], labels, 5 * simplex)
    assert_close(margins, torch.full((num_classes,), num_classes / (num_classes - 1), dtype=torch.float64))


def test_no_random_configuration_has_a_larger_smallest_margin():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4)
    for _ in range(200):
        features, weight = torch.randn(2, 4, 3, generator=generator)
        assert float(class_margins(features, labels, weight).min()) < 4 / 3


def test_lengths_do_not_count():
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    lengths = torch.rand(2, 5, 1, generator=generator, dtype=torch.float64) + 0.1
    labels = torch.arange(5)
    assert_close(
        sample_margins(lengths[0] * features, labels, lengths[1] * weight), sample_margins(features, labels, weight)
    )


def test_opposite_and_zero_features():
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 1, 0])
    features = torch.tensor([[-2.0, 0.0], [-3.0, 0.0], [0.0, 0.0]])
    assert sample_margins(features, labels, weight).tolist() == [-2, 2, 0]
    assert class_margins(features, labels, weight).tolist() == [-2, 2]


def test_refuses():
    with pytest.raises(ValueError, match="features and weight must have one dimension d, got 2 and 3"):
        sample_margins(torch.ones(2, 2), torch.tensor([0, 1]), torch.ones(2, 3))
    with pytest.raises(ValueError, match="every class needs a sample, but class 2 has none"):
        class_margins(torch.ones(2, 2), torch.tensor([0, 1]), torch.ones(3, 2))
    with pytest.raises(ValueError, match="weight must be finite, but row 1 is not"):
        class_margins(torch.ones(2, 2), torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [math.nan, 0.0]]))
