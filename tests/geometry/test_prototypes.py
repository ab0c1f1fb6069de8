import math

import pytest
import torch
from torch.nn import functional as F

from ltnb.geometry import anchored_prototypes, regular_simplex, simplex_distance


def smallest_angle(prototypes):
    """In degrees, by loops."""
    angles = [
        math.degrees(math.acos(max(-1.0, min(1.0, float(prototypes[i] @ prototypes[j])))))
        for i in range(len(prototypes))
        for j in range(i)
    ]
    return min(angles)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("form", ["automatic", "simplex"])
@pytest.mark.parametrize(("num_classes", "dim"), [(2, 1), (4, 3), (10, 9), (10, 64)])
def test_closed_form_where_it_fits(num_classes, dim, form):
    assert torch.equal(anchored_prototypes(num_classes, dim, form=form), regular_simplex(num_classes, dim))
    turned = anchored_prototypes(num_classes, dim, form=form, generator=seeded(1))
    assert torch.equal(turned, regular_simplex(num_classes, dim, generator=seeded(1)))


@pytest.mark.parametrize(("num_classes", "dim"), [(2, 3), (3, 2), (5, 4), (10, 9), (10, 12)])
def test_search_finds_the_simplex_where_it_fits(num_classes, dim):
    prototypes = anchored_prototypes(num_classes, dim, form="optimised", generator=seeded(dim))
    assert prototypes.shape == (num_classes, dim)
    assert simplex_distance(prototypes) < 1e-6


# Largest smallest angles that are known: the regular polygon; the octahedron and icosahedron; 90° for d+2 ≤ K ≤ 2d.
KNOWN = [
    (10, 2, 36.0),
    (5, 3, 90.0),
    (6, 3, 90.0),
    (12, 3, math.degrees(math.atan(2))),
    (100, 64, 90.0),
]


@pytest.mark.parametrize(("num_classes", "dim", "angle"), KNOWN)
def test_search_reaches_the_known_optimum_and_says_what_is_lost(num_classes, dim, angle):
    with pytest.warns(
        UserWarning, match=f"{num_classes} prototypes in R\\^{dim} cannot form a regular simplex"
    ) as seen:
        prototypes = anchored_prototypes(num_classes, dim)
    assert prototypes.dtype == torch.float64
    assert prototypes.shape == (num_classes, dim)
    torch.testing.assert_close(prototypes.norm(dim=1), torch.ones(num_classes, dtype=torch.float64))
    assert smallest_angle(prototypes) == pytest.approx(angle, abs=1e-3)
    assert float(prototypes.sum(dim=0).norm()) < 1e-5
    margin, ideal_angle = 1 - math.cos(math.radians(angle)), math.degrees(math.acos(-1 / (num_classes - 1)))
    message = str(seen[0].message)
    assert f"needs R^{num_classes - 1}" in message
    assert f"min-margin is {margin:.4f} instead of {num_classes / (num_classes - 1):.4f}" in message
    assert f"smallest angle {angle:.2f}° instead of {ideal_angle:.2f}°" in message


@pytest.mark.filterwarnings("ignore:.* cannot form a regular simplex:UserWarning")
def test_one_step_is_the_gradient_of_the_loss_by_loops():
    num_classes, dim, scale = 5, 2, 3.0
    start = torch.randn(2, num_classes, dim, generator=seeded(4), dtype=torch.float64)
    features, prototypes = F.normalize(start, dim=2).requires_grad_()
    losses = []
    for i in range(num_classes):
        logits = [scale * features[i] @ prototypes[j] for j in range(num_classes)]
        losses.append(sum(logit.exp() for logit in logits).log() - logits[i])
    (gradient,) = torch.autograd.grad(sum(losses), prototypes)
    expected = []
    for prototype, slope in zip(prototypes.detach(), gradient / scale, strict=True):
        moved = prototype - (slope - (slope @ prototype) * prototype)
        expected.append(moved / moved.norm())
    found = anchored_prototypes(num_classes, dim, scale=scale, steps=1, generator=seeded(4))
    torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.filterwarnings("ignore:.* cannot form a regular simplex:UserWarning")
def test_same_prototypes_each_time_and_another_orientation_with_another_seed():
    assert torch.equal(anchored_prototypes(7, 3, steps=50), anchored_prototypes(7, 3, steps=50))
    first, again, other = (anchored_prototypes(7, 3, steps=50, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.filterwarnings("ignore:.* cannot form a regular simplex:UserWarning")
def test_orientation_of_the_search_is_uniform():
    generator = seeded(0)
    firsts = torch.stack([anchored_prototypes(4, 2, steps=5, generator=generator)[0] for _ in range(300)])
    # Uniform on the circle: mean 0 with standard error 0.041, covariance I/2 with standard error 0.02.
    torch.testing.assert_close(firsts.mean(dim=0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=0.15)
    covariance = firsts.T @ firsts / 300
    torch.testing.assert_close(covariance, torch.eye(2, dtype=torch.float64) / 2, rtol=0, atol=0.1)


@pytest.mark.filterwarnings("ignore:.* cannot form a regular simplex:UserWarning")
@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_a_scale_out_of_proportion_still_gives_unit_rows(scale):
    prototypes = anchored_prototypes(6, 3, scale=scale, steps=50)
    torch.testing.assert_close(prototypes.norm(dim=1), torch.ones(6, dtype=torch.float64))


def test_prototypes_that_coincide_have_angle_zero():
    with pytest.warns(UserWarning, match=r"min-margin is 0\.0000 instead of 1\.5000, their smallest angle 0\.00°"):
        anchored_prototypes(3, 1)


def test_closed_form_on_demand_refuses_too_few_dimensions():
    with pytest.raises(ValueError, match=r"dim=8 cannot hold a regular simplex of 10 vertices.* at least 9"):
        anchored_prototypes(10, 8, form="simplex")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"form": "etf"}, "form must be one of automatic, simplex, optimised, got 'etf'"),
        ({"scale": 0.0}, r"scale must be a positive number, got 0\.0"),
        ({"scale": math.nan}, "scale must be a positive number, got nan"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        anchored_prototypes(**{"num_classes": 4, "dim": 2, **arguments})
