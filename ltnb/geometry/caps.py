"""Random points in the caps of the unit sphere S^(d−1), at any dimension d ≥ 2 and any radius from 0 to π.

A cap holds the unit vectors within the angle r of its centre. Every point of it is

    z = cos θ · μ + sin θ · ν,   μ the centre, θ in [0, r], ν a unit vector orthogonal to μ.

ν is uniform; what differs is the law of θ. FeatRecon (Yi et al., ICLR 2025) has been described with both of those
here. In many dimensions they differ a lot: a uniform point of a cap in R^128 lies close to the rim.

Angles come from the inverse of their distribution function, so each row takes one uniform number whatever its radius:
nothing is rejected, and narrow caps take no longer than wide ones.
"""

import math
from functools import cache

import numpy as np
import torch
from scipy import special
from torch import Tensor

from ltnb.geometry.inputs import unit_rows

# Gauss–Legendre nodes and weights on [0, 1], enough for `_log_area_and_depth` to be exact to rounding. It leaves out
# what lies below e^(−TAIL) of the integrand's maximum.
NODES, WEIGHTS = (np.polynomial.legendre.leggauss(20)[0] + 1) / 2, np.polynomial.legendre.leggauss(20)[1] / 2
TAIL = 36.0

# Halley steps of `_angle_of_share`, each of which triples the number of right digits: a fourth changes rounding only.
STEPS = 3

# A standard deviation below this angle is a point: squares of the bounds in units of it would overflow.
POINT = 1e-12


def uniform_in_cap(centres: Tensor, radii: Tensor, generator: torch.Generator) -> Tensor:
    """One point z of each cap, uniform by area: θ has the density sin^(d−2) θ / ∫₀^r sin^(d−2) φ dφ on [0, r].

    Args:
        centres: μ (M, d) unit rows, d at least 2; M may be 0.
        radii: r (M,) in [0, π]. At 0 the point is the centre, at π it is uniform on the whole sphere.
        generator: source of the randomness, on the centres' device.

    Returns:
        (M, d) unit rows of the centres' dtype and device, without gradient. The angles are exact to float64; rounding
        the points to the dtype moves them by its precision (about 1e-7 in float32), so also across the rim.

    Raises:
        ValueError: centres that are not unit rows in at least two dimensions; radii that are not one for each row, or
            lie outside [0, π].
    """
    _check_caps(centres, radii)
    shares = _uniform_shares(len(centres), generator)
    return _points_at(centres, uniform_cap_angles(shares, radii, centres.shape[1]), generator)


def truncated_normal_in_cap(
    centres: Tensor, radii: Tensor, means: Tensor, stds: Tensor, generator: torch.Generator
) -> Tensor:
    """One point z of each cap, with θ ~ N(m, s²) truncated to [0, r] (FeatRecon, Eqs. 14–16).

    The equations make ν from a Gaussian vector g, ν = (g − (g·μ) μ)/‖g − (g·μ) μ‖. Here it is the reflection to μ of
    a Gaussian direction orthogonal to the first axis: the same law, and orthogonal to μ even where the difference is
    mostly rounding.

    Args:
        centres, radii, generator: as in `uniform_in_cap`.
        means: m (M,) in [0, π]: of the normal law before it is truncated, so m > r is allowed.
        stds: s (M,) in [0, π]. At 0 the law is one point, the angle of [0, r] nearest to m.

    Returns, raises: as `uniform_in_cap`; means and stds are checked as radii are.
    """
    _check_caps(centres, radii)
    for name, angles in (("means", means), ("stds", stds)):
        _check_angles(name, angles, len(centres))
    shares = _uniform_shares(len(centres), generator)
    return _points_at(centres, truncated_normal_angles(shares, radii, means, stds), generator)


def uniform_cap_angles(shares: Tensor, radii: Tensor, dim: int) -> Tensor:
    """The θ within which a share u of the cap's area lies: ∫₀^θ sin^(d−2) φ dφ = u ∫₀^r sin^(d−2) φ dφ.

    The inverse of the distribution function of the angle of a uniform point. θ = u r for d = 2, and
    cos θ = 1 − u (1 − cos r) for d = 3.

    Args:
        shares: u in [0, 1], any shape.
        radii: r in [0, π], of a shape that broadcasts with that of the shares.
        dim: d, at least 2.

    Returns:
        θ in [0, r], float64, on the shares' device, exact to 1e-14 θ: also near the centre, near the rim, and in caps
        so narrow that their area underflows (checked against 40 digits for d = 2 … 1024).

    Raises:
        ValueError: d < 2.
    """
    _check_dim(dim)
    shares, radii = shares.detach().double(), radii.detach().double()
    # The density is symmetric about 90°, so a cap beyond it is the sphere without the cap around the other pole.
    wide = radii > math.pi / 2
    log_area, _ = _log_area_and_depth(torch.where(wide, math.pi - radii, radii), dim)
    log_half_sphere, _ = _log_area_and_depth(radii.new_full((), math.pi / 2), dim)
    outside = torch.where(wide, (log_area - log_half_sphere).exp() / 2, 0)
    below, above = shares * (1 - outside), 1 - shares + shares * outside
    far = wide & (below > 0.5)
    of_half_sphere = 2 * torch.where(far, above, below)
    angles = _angle_of_share(
        torch.where(wide, of_half_sphere, shares),
        radii.clamp(max=math.pi / 2),
        torch.where(wide, log_half_sphere, log_area),
        dim,
    )
    return torch.where(far, math.pi - angles, angles).clamp(min=0).minimum(radii)


def truncated_normal_angles(shares: Tensor, radii: Tensor, means: Tensor, stds: Tensor) -> Tensor:
    """The θ of [0, r] with P(0 ≤ X ≤ θ) = u P(0 ≤ X ≤ r) for X ~ N(m, s²).

    The inverse of the distribution function of the truncated normal angle, in logarithms: a cap may end many standard
    deviations below the mean, where both probabilities underflow.

    Args:
        shares: u in [0, 1], any shape.
        radii, means, stds: r, m and s in [0, π], of shapes that broadcast with that of the shares.

    Returns:
        θ in [0, r], float64, on the shares' device.
    """
    device = shares.device
    angles = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
        *(angles.detach().double() for angles in (shares, radii, means, stds))
    )
    # From an accelerator in one message: the host waits for each.
    shares, radii, means, stds = angles if device.type == "cpu" else torch.stack(angles).cpu()
    is_point = stds < POINT
    scales = stds.masked_fill(is_point, 1)
    log_low = special.log_ndtr((-means / scales).numpy())
    log_high = special.log_ndtr(((radii - means) / scales).numpy())
    log_shares = shares.log().numpy(), torch.log1p(-shares).numpy()
    quantiles = special.ndtri_exp(np.logaddexp(log_shares[0] + log_high, log_shares[1] + log_low))
    drawn = means + scales * torch.from_numpy(np.asarray(quantiles))
    return torch.where(is_point, means, drawn).clamp(min=0).minimum(radii).to(device)


def _uniform_shares(number: int, generator: torch.Generator) -> Tensor:
    return torch.rand(number, dtype=torch.float64, device=generator.device, generator=generator)


def _points_at(centres: Tensor, angles: Tensor, generator: torch.Generator) -> Tensor:
    """cos θ · μ + sin θ · ν (M, d) with a uniform ν ⟂ μ in each row."""
    dtype = torch.promote_types(centres.dtype, torch.float32)
    mu = torch.nn.functional.normalize(centres.detach().to(dtype), dim=1)
    first, others = mu[:, :1], mu[:, 1:]
    gaussian = torch.randn(others.shape, dtype=dtype, device=mu.device, generator=generator)
    g = torch.nn.functional.normalize(gaussian, dim=1)
    # (0, g) is orthogonal to the first axis e. The reflection that takes e to ∓μ makes it orthogonal to μ; with the
    # sign of μ₁ as here, its normal μ ± e is never near zero.
    along = (others * g).sum(dim=1, keepdim=True)
    nu = torch.cat([torch.where(first < 0, along, -along), g - along / (1 + first.abs()) * others], dim=1)
    return (angles.cos()[:, None].to(dtype) * mu + angles.sin()[:, None].to(dtype) * nu).to(centres.dtype)


def _angle_of_share(shares: Tensor, rims: Tensor, log_areas: Tensor, dim: int) -> Tensor:
    """`uniform_cap_angles` of caps no wider than 90°, given the logarithms of their areas."""
    # Halley's method on the logarithm of the area, which is concave with the derivative 1/depth. The start is exact up
    # to a factor cos θ in the density, and below the root.
    angles = (rims.sin() * shares ** (1 / (dim - 1))).clamp(max=1).arcsin()
    for _ in range(STEPS):
        log_area, depth = _log_area_and_depth(angles, dim)
        excess = log_area - log_areas - shares.log()
        bend = (dim - 2) * depth / angles.tan() - 1
        angles = (angles - excess * depth / (1 - excess * bend / 2)).minimum(rims)
    return torch.where((shares > 0) & (rims > 0), angles, 0)


def _log_area_and_depth(angles: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """log ∫₀^θ sin^n φ dφ with n = d − 2, and ∫₀^θ (sin φ/sin θ)^n dφ: the area over the density at θ ≤ 90°."""
    power = dim - 2
    # An angle of 0 would have a density of 0/0; this one has no area in float64 either.
    angles = angles.clamp(min=1e-300)
    sines = angles.sin()
    lowest = (sines * math.exp(-TAIL / power)).arcsin() if power else torch.zeros_like(angles)
    spread = angles - lowest
    nodes, weights = _quadrature(angles.device)
    inside = torch.addcmul(lowest[..., None], spread[..., None], nodes).sin_().div_(sines[..., None]).pow_(power)
    depth = spread * (inside @ weights)
    return power * sines.log() + depth.log(), depth


@cache
def _quadrature(device: torch.device) -> tuple[Tensor, Tensor]:
    # Kept for each device: copying them there makes the host wait.
    return torch.as_tensor(NODES, device=device), torch.as_tensor(WEIGHTS, device=device)


def _check_dim(dim: int) -> None:
    if dim < 2:
        raise ValueError(f"dim must be at least 2, since a cap has no directions in one dimension; got {dim}")


def _check_caps(centres: Tensor, radii: Tensor) -> None:
    if centres.ndim == 2:
        _check_dim(centres.shape[1])
    if centres.ndim != 2 or (len(centres) and centres.device.type == "cpu"):  # elsewhere the host would wait
        unit_rows("centres", centres)
    _check_angles("radii", radii, len(centres))


def _check_angles(name: str, angles: Tensor, number: int) -> None:
    if angles.shape != (number,) or not angles.is_floating_point():
        raise ValueError(
            f"{name} must be a floating-point vector with one angle for each of the {number} centres; "
            f"got shape {tuple(angles.shape)}, dtype {angles.dtype}"
        )
    if angles.device.type != "cpu":
        return
    # float32 rounds π up by 9e-8.
    outside = ~((angles >= 0) & (angles.double() <= math.pi + 1e-6))
    if outside.any():
        raise ValueError(f"{name} must lie in [0, π] radians, got {float(angles[outside][0])}")
