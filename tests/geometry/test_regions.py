import math

import pytest
import torch

from ltnb.geometry import decision_regions, direction_shares


def test_regions_by_loops():
    generator = torch.Generator().manual_seed(0)
    points, weight = torch.randn(50, 3, generator=generator), torch.randn(4, 3, generator=generator)
    bias = torch.randn(4, generator=generator)
    for b in (None, bias):
        logits = [
            [sum(float(w) * float(x) for w, x in zip(row, point, strict=True)) for row in weight] for point in points
        ]
        if b is not None:
            logits = [[logit + float(c) for logit, c in zip(of_point, b, strict=True)] for of_point in logits]
        expected = [max(range(4), key=of_point.__getitem__) for of_point in logits]
        assert decision_regions(points, weight, b).tolist() == expected
    assert decision_regions(points, weight).tolist() != decision_regions(points, weight, bias).tolist()


def test_unit_rows_decide_as_cosines_do():
    generator = torch.Generator().manual_seed(0)
    points, weight = torch.randn(200, 2, generator=generator), torch.randn(5, 2, generator=generator)
    cosines = torch.nn.functional.cosine_similarity(points[:, None], weight, dim=2)
    unit = torch.nn.functional.normalize(weight)
    assert decision_regions(points, unit).tolist() == cosines.argmax(dim=1).tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equal_shares_at_equal_angles(dtype):
    turn = 2 * math.pi * torch.arange(10) / 10
    weight = torch.stack([turn.cos(), turn.sin()], dim=1).to(dtype)
    assert direction_shares(weight).tolist() == pytest.approx(
        [0.1] * 10, abs=0.001 if dtype != torch.bfloat16 else 0.02
    )


def test_shares_are_the_outer_angles_of_the_convex_hull():
    # A right-angled triangle with a point inside: outer angles of 90°, 135° and 135°, and nothing.
    weight = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.2, 0.2]])
    assert direction_shares(weight).tolist() == pytest.approx([1 / 4, 3 / 8, 3 / 8, 0], abs=1e-4)


def test_a_longer_vector_takes_more():
    turn = 2 * math.pi * torch.arange(3) / 3
    weight = torch.stack([turn.cos(), turn.sin()], dim=1) * torch.tensor([[2.0], [1.0], [1.0]])
    shares = direction_shares(weight)
    assert float(shares.sum()) == pytest.approx(1)
    assert shares[0] > 1 / 3 > shares[1]
    assert float(shares[1]) == pytest.approx(float(shares[2]), abs=1e-4)


def test_refuses():
    square = torch.eye(2)
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        decision_regions(square, torch.ones(1, 2))
    with pytest.raises(ValueError, match="one dimension d, got 2 and 3"):
        decision_regions(square, torch.ones(2, 3))
    with pytest.raises(ValueError, match="bias must hold 2 finite numbers"):
        decision_regions(square, square, torch.zeros(3))
    with pytest.raises(ValueError, match=r"weight must have shape \(K, 2\), got \(2, 3\)"):
        direction_shares(torch.ones(2, 3))
    with pytest.raises(ValueError, match="directions must be at least 1, got 0"):
        direction_shares(square, directions=0)
