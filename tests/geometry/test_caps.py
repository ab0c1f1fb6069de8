import math
import random

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from ltnb.geometry import truncated_normal_angles, truncated_normal_in_cap, uniform_cap_angles, uniform_in_cap

NUMBER = 4000
# All seeds are fixed; 1 % of right laws would be refused at this level.
LEVEL = 0.01


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def unit(num_rows, dim, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(num_rows, dim, generator=generator(seed), dtype=torch.float64), dim=1
    )


def angles_between(a, b):
    return 2 * torch.atan2((a - b).norm(dim=1), (a + b).norm(dim=1))


def parts(z, centres):
    """Angles to the centres, and the unit tangents there."""
    across = z - (z * centres).sum(dim=1, keepdim=True) * centres
    return angles_between(z, centres), across / across.norm(dim=1, keepdim=True)


def fit(values, law):
    """The p-value of the Kolmogorov–Smirnov test."""
    return stats.kstest(values, law, method="asymp").pvalue


def uniform_angle_cdf(radius, dim):
    """By the trapezoidal rule from the density sin^(d−2)."""
    grid = np.linspace(0, radius, 20_001)
    density = (np.sin(grid) / np.sin(grid).max()) ** (dim - 2)
    areas = np.r_[0, np.cumsum(density[1:] + density[:-1])]
    return lambda angle: np.interp(angle, grid, areas / areas[-1])


@pytest.mark.parametrize("radius", [1e-3, 0.5, math.pi / 2, 2.2, math.pi])
@pytest.mark.parametrize("dim", [2, 3, 8, 128])
def test_uniform_angles_have_the_density_of_the_area(dim, radius):
    centres = unit(NUMBER, dim, seed=1)
    z = uniform_in_cap(centres, torch.full((NUMBER,), radius, dtype=torch.float64), generator(dim))
    torch.testing.assert_close(z.norm(dim=1), torch.ones(NUMBER, dtype=torch.float64), rtol=0, atol=1e-14)
    angles = angles_between(z, centres)
    assert float(angles.max()) <= radius + 1e-15
    assert fit(angles.numpy(), uniform_angle_cdf(radius, dim)) > LEVEL
    # Another dimension's law would be noticed.
    assert fit(angles.numpy(), uniform_angle_cdf(radius, dim + 1 + dim // 2)) < 1e-6


@pytest.mark.parametrize("radius", [0.9, 2.0])
def test_uniform_points_are_those_of_the_sphere_that_fall_into_the_cap(radius):
    thrown = unit(20_000, 4, seed=3)
    centre = torch.tensor([[0.5, -0.5, 0.5, 0.5]], dtype=torch.float64)
    fallen = thrown[angles_between(thrown, centre) <= radius]
    drawn = uniform_in_cap(
        centre.expand(len(fallen), 4), torch.full((len(fallen),), radius, dtype=torch.float64), generator(4)
    )
    for axis in range(4):
        assert stats.ks_2samp(fallen[:, axis].numpy(), drawn[:, axis].numpy()).pvalue > LEVEL


def test_each_row_has_the_law_of_its_own_radius():
    dim, different = 16, torch.linspace(0.01, math.pi, 40, dtype=torch.float64)
    radii, centres = different.repeat(NUMBER // 40), unit(NUMBER, dim)
    angles = angles_between(uniform_in_cap(centres, radii, generator(5)), centres)
    # Each angle's share of its own cap is uniform.
    shares = [uniform_angle_cdf(radius, dim)(angles[row::40].numpy()) for row, radius in enumerate(different.tolist())]
    assert fit(np.concatenate(shares), "uniform") > LEVEL


def poles(dim):
    pole = torch.eye(1, dim, dtype=torch.float64)
    return {"axis": pole, "opposite": -pole, "orthogonal": pole.roll(1, 1), "any": unit(1, dim, seed=9)}


@pytest.mark.parametrize("law", ["uniform", "truncated normal"])
@pytest.mark.parametrize("dim", [2, 3, 8, 128])
@pytest.mark.parametrize("centre", ["axis", "opposite", "orthogonal", "any"])
def test_directions_are_uniform_and_independent_of_the_angle(centre, dim, law):
    centres = poles(dim)[centre].expand(NUMBER, dim)
    radii, means, stds = (torch.full((NUMBER,), value, dtype=torch.float64) for value in (1.2, 0.5, 0.3))
    if law == "uniform":
        z = uniform_in_cap(centres, radii, generator(7))
    else:
        z = truncated_normal_in_cap(centres, radii, means, stds, generator(7))
    angles, tangents = parts(z, centres)
    assert float((tangents * centres).sum(dim=1).abs().max()) < 1e-12
    # The cosine with a fixed tangent: (1 + t)/2 ~ Beta((d−2)/2, (d−2)/2) on the sphere S^(d−2) of tangents.
    fixed = unit(1, dim, seed=11)
    fixed = fixed - (fixed * centres[:1]).sum() * centres[:1]
    cosines = (tangents @ (fixed / fixed.norm()).T).squeeze(1)
    far = angles > angles.median()
    for group in (cosines, cosines[far], cosines[~far]):
        if dim == 2:
            assert stats.binomtest(int((group > 0).sum()), len(group)).pvalue > LEVEL
        else:
            law_of_cosine = stats.beta((dim - 2) / 2, (dim - 2) / 2, loc=-1, scale=2)
            assert fit(group.numpy(), law_of_cosine.cdf) > LEVEL / 10
    # Second moments in all directions: E ννᵀ = (I − μμᵀ)/(d−1).
    expected = (torch.eye(dim, dtype=torch.float64) - centres[0, :, None] * centres[0]) / (dim - 1)
    deviation = (tangents.T @ tangents / NUMBER - expected).abs().max()
    assert float(deviation) < 6 / (dim - 1) / math.sqrt(NUMBER) + 1e-12


def area(angle, dim):
    """∫₀^θ sin^(d−2) in 40 digits."""
    with mpmath.workdps(40):
        half, angle = mpmath.mpf(dim - 1) / 2, mpmath.mpf(angle)
        near = mpmath.betainc(half, 0.5, 0, mpmath.sin(angle) ** 2) / 2
        return near if angle <= mpmath.pi / 2 else mpmath.beta(half, 0.5) - near


@pytest.mark.parametrize("dim", [2, 3, 8, 128, 1024])
def test_uniform_angles_are_exact_from_the_centre_to_the_rim(dim):
    shares = [1e-15, 1e-3, 0.5, 0.9, 1 - 1e-9, 1.0]
    for radius in (1e-8, 0.3, 1.5, math.pi / 2, 1.6, 3.1, math.pi):
        angles = uniform_cap_angles(
            torch.tensor(shares, dtype=torch.float64), torch.tensor(radius, dtype=torch.float64), dim
        ).tolist()
        assert angles[-1] == pytest.approx(radius, rel=1e-15)
        with mpmath.workdps(40):
            for share, angle in zip(shares[:-1], angles, strict=False):
                error = (area(angle, dim) - mpmath.mpf(share) * area(radius, dim)) / mpmath.sin(angle) ** (dim - 2)
                assert abs(error) <= 1e-14 * angle


def test_uniform_angles_in_closed_form():
    shares = torch.linspace(0, 1, 101, dtype=torch.float64)
    for radius in (1e-3, 1.0, math.pi / 2, 2.5, math.pi):
        radii = torch.full_like(shares, radius)
        torch.testing.assert_close(uniform_cap_angles(shares, radii, 2), shares * radius, rtol=1e-14, atol=0)
        haversines = uniform_cap_angles(shares, radii, 3).div(2).sin().square()
        torch.testing.assert_close(haversines, shares * math.sin(radius / 2) ** 2, rtol=1e-13, atol=0)


TRUNCATED = [
    (0.8, 0.35, 0.14),
    (0.8, 0.0, 0.3),  # half a normal
    (0.8, 1.5, 0.05),  # the rim is 14 standard deviations below the mean,
    (0.8, 1.5, 1e-4),  # and here 7000
    (0.8, 0.8, 1e-6),
    (1e-3, 3.0, 0.5),  # nearly uniform
    (math.pi, 1.5, 3.0),
]


@pytest.mark.parametrize(("radius", "mean", "std"), TRUNCATED)
def test_truncated_normal_angles(radius, mean, std):
    law = stats.truncnorm(-mean / std, (radius - mean) / std, loc=mean, scale=std)
    shares = torch.cat([torch.linspace(0, 1, 101), torch.tensor([1e-300, 1e-16])]).double()
    radii, means, stds = (torch.full_like(shares, value) for value in (radius, mean, std))
    angles = truncated_normal_angles(shares, radii, means, stds)
    np.testing.assert_allclose(angles.numpy(), law.ppf(shares.numpy()), rtol=1e-13, atol=1e-15)

    centres = unit(NUMBER, 128)
    per_row = (torch.full((NUMBER,), value, dtype=torch.float64) for value in (radius, mean, std))
    drawn = angles_between(truncated_normal_in_cap(centres, *per_row, generator(13)), centres)
    assert float(drawn.max()) <= radius + 1e-15
    assert fit(drawn.numpy(), law.cdf) > LEVEL


def test_truncated_normal_without_spread_is_the_angle_nearest_to_the_mean():
    centres = unit(4, 8)
    radii, means, stds = torch.tensor([[0.8] * 4, [0.3, 0.8, 1.5, 0.0], [0.0] * 4], dtype=torch.float64)
    z = truncated_normal_in_cap(centres, radii, means, stds, generator())
    expected = torch.tensor([0.3, 0.8, 0.8, 0.0], dtype=torch.float64)
    torch.testing.assert_close(angles_between(z, centres), expected, rtol=0, atol=1e-15)
    # The least spread that is one leads to the same.
    barely = truncated_normal_angles(torch.full((4,), 0.5, dtype=torch.float64), radii, means, stds + 1e-11)
    torch.testing.assert_close(barely, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dim", [2, 3, 128])
def test_a_cap_of_radius_zero_is_its_centre(dim):
    centres, zeros = unit(5, dim), torch.zeros(5, dtype=torch.float64)
    for z in (
        uniform_in_cap(centres, zeros, generator()),
        truncated_normal_in_cap(centres, zeros, zeros + 0.4, zeros + 0.2, generator()),
    ):
        torch.testing.assert_close(z, centres, rtol=0, atol=2e-16)


def test_no_rows():
    nothing, no_angles = torch.empty(0, 8), torch.empty(0)
    assert uniform_in_cap(nothing, no_angles, generator()).shape == (0, 8)
    assert truncated_normal_in_cap(nothing, no_angles, no_angles, no_angles, generator()).shape == (0, 8)


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_points_have_the_dtype_of_the_centres(dtype, atol):
    centres = unit(300, 128).to(dtype).requires_grad_()
    radii = torch.linspace(0, math.pi, 300)  # the last one is above π in float32
    means, stds = radii / 2, radii / 8
    for z in (
        uniform_in_cap(centres, radii, generator()),
        truncated_normal_in_cap(centres, radii, means, stds, generator()),
    ):
        assert z.dtype == dtype
        assert not z.requires_grad
        torch.testing.assert_close(z.double().norm(dim=1), torch.ones(300, dtype=torch.float64), rtol=0, atol=atol)
        near = torch.nn.functional.normalize(centres.detach().double(), dim=1)
        assert ((angles_between(torch.nn.functional.normalize(z.double(), dim=1), near) - radii) <= atol).all()


def test_rows_do_not_disturb_each_other():
    """Every row takes the same share of the generator, whatever its radius."""
    centres, radii = unit(6, 8), torch.linspace(0.1, 3, 6, dtype=torch.float64)
    narrower = radii.clone()
    narrower[2] = 1e-4
    one, other = (uniform_in_cap(centres, angles, generator(3)) for angles in (radii, narrower))
    assert [bool((a == b).all()) for a, b in zip(one, other, strict=True)] == [True, True, False, True, True, True]


def test_only_the_generator_decides():
    centres, radii = unit(6, 8), torch.full((6,), 0.5)
    torch.manual_seed(0)
    random.seed(0)
    state = torch.get_rng_state()
    first = uniform_in_cap(centres, radii, generator(3))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, uniform_in_cap(centres, radii, generator(3)))
    assert not torch.equal(first, uniform_in_cap(centres, radii, generator(4)))


CENTRES, ANGLES = unit(3, 4), torch.full((3,), 0.5)


@pytest.mark.parametrize(
    ("centres", "radii", "message"),
    [
        (2 * CENTRES, ANGLES, "centres must have rows of unit length, but row 0 has length 2"),
        (CENTRES.index_fill(0, torch.tensor([1]), torch.nan), ANGLES, "centres must be finite, but row 1 is not"),
        (CENTRES[0], ANGLES, "centres must be a non-empty floating-point matrix"),
        (torch.ones(3, 1), ANGLES, "dim must be at least 2.* got 1"),
        (CENTRES, ANGLES[:2], r"radii must be .* one angle for each of the 3 centres; got shape \(2,\)"),
        (CENTRES, torch.ones(3, dtype=torch.int64), "radii must be a floating-point vector"),
        (CENTRES, -ANGLES, r"radii must lie in \[0, π\] radians, got -0.5"),
        (CENTRES, 100 * ANGLES, r"radii must lie in \[0, π\] radians, got 50"),
        (CENTRES, torch.nan * ANGLES, r"radii must lie in \[0, π\] radians, got nan"),
    ],
)
def test_bad_caps(centres, radii, message):
    with pytest.raises(ValueError, match=message):
        uniform_in_cap(centres, radii, generator())
    with pytest.raises(ValueError, match=message):
        truncated_normal_in_cap(centres, radii, ANGLES, ANGLES, generator())


def test_bad_laws():
    with pytest.raises(ValueError, match=r"means must lie in \[0, π\] radians, got 4"):
        truncated_normal_in_cap(CENTRES, ANGLES, 8 * ANGLES, ANGLES, generator())
    with pytest.raises(ValueError, match=r"stds must lie in \[0, π\] radians, got -0.5"):
        truncated_normal_in_cap(CENTRES, ANGLES, ANGLES, -ANGLES, generator())
    with pytest.raises(ValueError, match="dim must be at least 2"):
        uniform_cap_angles(ANGLES, ANGLES, 1)
