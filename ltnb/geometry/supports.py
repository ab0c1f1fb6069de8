"""Confidence supports: the caps in which FeatRecon (Yi et al., ICLR 2025) places each class and its synthetic features.

A support is estimated from a class's features (`confidence_supports`, Eq. 7), moved towards those of similar head
classes (`rectified_supports`, Eqs. 8 and 9) and cut at the largest radius that all classes can have without overlap
(`capped`, Eq. 10). `ltnb.geometry.caps` draws points in it.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ltnb.geometry.inputs import check_matrix, class_indices, counted_labels, row_labels, unit_rows
from ltnb.geometry.means import ROUNDING, class_sums, cosine_matrix, row_norms
from ltnb.geometry.simplex import simplex_cosine

_AT_ONCE = 4096  # rows that are widened to float64 together: all of iNaturalist's would take 14 GiB

HeadWeights = Literal["corrected", "printed"]


class Supports(NamedTuple):
    """One cap for each of K classes on the unit sphere of R^d, and how the class's angles are spread in it.

    Attributes:
        centres: μ (K, d) unit rows.
        radii: r (K,) in radians, in [0, π].
        angle_means: m (K,), mean of the angles between the class's features and its centre.
        angle_stds: s (K,), their standard deviation.
    """

    centres: Tensor
    radii: Tensor
    angle_means: Tensor
    angle_stds: Tensor


def confidence_supports(z: Tensor, labels: Tensor, num_classes: int, *, quantile: float = 0.99) -> Supports:
    """μ_k = Σ_{i: y_i = k} z_i/‖·‖ and r_k = Q_α{∠(z_i, μ_k) : y_i = k}, the support of each class (FeatRecon, Eq. 7).

    The paper keeps the mean z̄_k of the class, here it is divided by its length at once: the two are the same cap, but
    not the same similarities and mixtures in `rectified_supports`, where a mean's length would count as well.

    Q_α interpolates between the two nearest order statistics, so the cap holds the share α of the class to within one
    sample. The standard deviation is that of the n_k angles themselves (divided by n_k). A class of one sample is the
    point z_i, with radius, mean and standard deviation exactly 0, and so is a class of copies of one feature. The
    centre of two samples lies midway, so their two angles are equal, and the standard deviation is still 0.

    Args:
        z: (N, d) unit rows, any floating dtype; deviations of the length within 1 % are divided out.
        labels: y (N,), integers in 0 … K−1; every class needs a sample.
        num_classes: K, at least 2.
        quantile: α in [0, 1].

    Returns:
        `Supports` in float64, without gradient.

    Raises:
        ValueError: as in `class_means`, for rows that are not of unit length (the first is named), α outside [0, 1], or
            a class whose mean is zero and so has no direction (named).
    """
    if not 0 <= quantile <= 1:
        raise ValueError(f"quantile must lie in [0, 1], got {quantile}")
    check_matrix("z", z)
    labels, counts = counted_labels(labels, len(z), num_classes)
    sums = torch.zeros(num_classes, z.shape[1], dtype=torch.float64, device=z.device)
    for first, directions in _directions(z):
        sums.index_add_(0, labels[first : first + len(directions)], directions)
    means = sums / counts[:, None]
    lengths = row_norms(means)
    if (lengths <= ROUNDING).any():
        raise ValueError(f"z must give every class a direction, but the mean of class {int(lengths.argmin())} is zero")
    centres = means / lengths
    angles = torch.empty(len(z), dtype=torch.float64, device=z.device)
    for first, directions in _directions(z):
        end = first + len(directions)
        own = centres[labels[first:end]]
        # arccos would round the angles of a tight class to multiples of 1e-8.
        halves = torch.atan2(row_norms(directions - own), row_norms(directions + own))
        angles[first:end] = 2 * halves.squeeze(1)
    angles = angles.masked_fill(angles <= ROUNDING, 0)
    angle_means = _means_by_class(angles, labels, counts)
    angle_stds = _means_by_class((angles - angle_means[labels]).square(), labels, counts).sqrt()
    return Supports(centres, _quantiles_by_class(angles, labels, counts, quantile), angle_means, angle_stds)


def _directions(z: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of a first row and the directions of it and some that follow, checked, in float64."""
    for first in range(0, len(z), _AT_ONCE):
        rows = unit_rows("z", z[first : first + _AT_ONCE], first)
        yield first, rows / row_norms(rows)


def rectified_supports(
    supports: Supports,
    class_counts: Tensor,
    heads: Tensor,
    *,
    nearest: int,
    mix: float,
    weights: HeadWeights = "corrected",
) -> Supports:
    """μ'_k ∝ (1−γ) Σ_c ω_kc μ_c + γ μ_k and r'_k = (1−γ) Σ_c ω_kc r_c + γ r_k (FeatRecon, Eqs. 8 and 9).

    c runs over the q head classes most similar to k, by s_kc = μ_k·μ_c, with the weights

        corrected:  ω_kc = N_c s_kc / Σ_j N_j s_kj, an average;      printed:  ω_kc = N_k s_kc / Σ_j N_j s_kj.

    The second is the paper's formula as we have it. Its weights do not sum to one: next to heads of many samples, a
    class of few gets a centre and a radius of almost γ μ_k and γ r_k. The centre is normalised either way.

    Left open by the paper, and settled here:
    - a similarity below 0 counts as 0, since a negative weight would push away from a head rather than draw towards it;
    - a class without any head of positive similarity stays as it is;
    - so do the heads themselves: each would be its own nearest head;
    - mean and standard deviation of the angles mix as the radius does. Otherwise a class of one sample, whose own
      angles are all 0, would stay a point under `truncated_normal_in_cap` whatever radius it borrows;
    - of heads that are equally similar, the one listed first is nearer.

    Args:
        supports: of K classes.
        class_counts: N (K,), samples of each class, positive.
        heads: (H,) distinct indices of the head classes.
        nearest: q in 1 … H.
        mix: γ in [0, 1], how much of its own support a class keeps; 1 changes nothing.
        weights: "corrected" or "printed".

    Returns:
        `Supports` in float64; radii and the rest are cut at π, which only printed weights can exceed.

    Raises:
        ValueError: counts or heads that do not fit, q outside 1 … H, γ outside [0, 1], unknown weights.
    """
    num_classes = len(supports.centres)
    heads = class_indices("heads", heads)
    indices = heads.tolist()
    if not indices or len(set(indices)) < len(indices) or not all(0 <= head < num_classes for head in indices):
        raise ValueError(
            f"heads must hold distinct class indices in 0 … {num_classes - 1}, at least one; got {indices}"
        )
    if class_counts.shape != (num_classes,) or not (class_counts > 0).all():
        raise ValueError(
            f"class_counts must hold a positive number for each of {num_classes} classes, got {class_counts.tolist()}"
        )
    if not 1 <= nearest <= len(indices):
        raise ValueError(f"nearest must lie in 1 … {len(indices)}, the number of head classes; got {nearest}")
    if not 0 <= mix <= 1:
        raise ValueError(f"mix must lie in [0, 1], got {mix}")
    if weights not in get_args(HeadWeights):
        raise ValueError(f"weights must be one of {', '.join(map(repr, get_args(HeadWeights)))}; got {weights!r}")

    own = Supports(*(part.double() for part in supports))
    similarities, order = (own.centres @ own.centres[heads].T).sort(dim=1, descending=True, stable=True)
    similarities, neighbours = similarities[:, :nearest].clamp(min=0), heads[order[:, :nearest]]
    counts = class_counts.double()
    total = (counts[neighbours] * similarities).sum(dim=1, keepdim=True)
    changes = total.squeeze(1) > 0
    changes[heads] = False
    shares = (counts[neighbours] if weights == "corrected" else counts[:, None]) * similarities / total

    def mixed(part: Tensor) -> Tensor:
        borrowed = torch.einsum("kq,kq...->k...", shares, part[neighbours])
        return (1 - mix) * borrowed + mix * part

    centres = mixed(own.centres)
    return Supports(
        torch.where(changes[:, None], centres / row_norms(centres), own.centres),
        *(torch.where(changes, mixed(part).clamp(max=math.pi), part) for part in own[1:]),
    )


def largest_common_radius(num_classes: int) -> float:
    """½ arccos(−1/(K−1)) in radians: the largest common radius of K caps of a sphere with disjoint interiors.

    Two caps of radius r have disjoint interiors where their centres are at least 2r apart, and of K directions two are
    at most arccos(−1/(K−1)) apart. So the radius is attained by the centres of a regular simplex, and by no others.

    Args:
        num_classes: K, at least 2.

    Returns:
        π/2 for K = 2, 48.19° for 10, 45.29° for 100; above π/4.

    Raises:
        ValueError: K < 2.
    """
    return math.acos(simplex_cosine(num_classes)) / 2


def capped(supports: Supports) -> Supports:
    """r̄_k = min(r_k, ½ arccos(−1/(K−1))) (FeatRecon, Eq. 10); the rest stays.

    It makes the supports disjoint only if their centres form a regular simplex: see `cap_overlaps`.

    Args:
        supports: of K ≥ 2 classes.

    Raises:
        ValueError: K < 2.
    """
    return supports._replace(radii=supports.radii.clamp(max=largest_common_radius(len(supports.radii))))


def cap_overlaps(supports: Supports) -> Tensor:
    """r_j + r_k − ∠(μ_j, μ_k) in degrees: how deep two supports reach into each other.

    Args:
        supports: of K classes.

    Returns:
        (K, K) float64, symmetric: positive where the interiors overlap, 0 where two caps touch, negative where there is
        a gap between them, NaN on the diagonal.
    """
    radii = supports.radii.double()
    angles = cosine_matrix(supports.centres).arccos()
    return (radii[:, None] + radii - angles).rad2deg().fill_diagonal_(torch.nan)


def nearest_centre_error(z: Tensor, labels: Tensor, supports: Supports) -> float:
    """(1/|Y|) Σ_{k ∈ Y} (1/n_k) Σ_{i: y_i = k} [argmax_j z_i·μ_j ≠ k]: features nearer to the centre of another class.

    Y are the classes among the labels. They count the same, so the error on long-tailed training features can be
    compared with that on balanced test features. Radii play no part; of equally near centres the first is taken.

    Args:
        z: (N, d) unit rows.
        labels: y (N,), integers in 0 … K−1; classes may be absent.
        supports: of K classes, in the same dimension.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: z is not of unit rows or has another dimension; labels that do not fit.
    """
    z, centres = unit_rows("z", z), supports.centres.double()
    if z.shape[1] != centres.shape[1]:
        raise ValueError(f"z must have rows of length {centres.shape[1]} like the centres, got {z.shape[1]}")
    labels = row_labels(labels, len(z))
    outside = (labels < 0) | (labels >= len(centres))
    if outside.any():
        raise ValueError(f"labels must lie in 0 … {len(centres) - 1}, got {int(labels[outside][0])}")
    wrong = ((z @ centres.T).argmax(dim=1) != labels).double()
    _, classes, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    return float(_means_by_class(wrong, classes, counts).mean())


def _means_by_class(values: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """(K,): the mean of `values` (N,) over each class."""
    return class_sums(values[:, None], labels, len(counts)).squeeze(1) / counts


def _quantiles_by_class(values: Tensor, labels: Tensor, counts: Tensor, quantile: float) -> Tensor:
    """(K,): `torch.quantile` of `values` (N,) over each class, all classes at once."""
    by_value = values.argsort()
    by_class = values[by_value[labels[by_value].argsort(stable=True)]]
    positions = quantile * (counts - 1).double()
    below = positions.floor().long()
    above = positions.ceil().long()
    first = counts.cumsum(dim=0) - counts
    return torch.lerp(by_class[first + below], by_class[first + above], positions - below)
