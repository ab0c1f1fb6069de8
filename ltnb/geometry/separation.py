"""Compactness and separability by class, after BCE3S.

Fan, Li, Wen & Peng (AAAI 2026) define these three metrics in a supplement that we could not obtain. The
formulas here are reconstructed: that of the classifier is confirmed by the reported value (a regular simplex
of 100 classes gives 50.505, the paper says about 50.50). Those of the features follow its form; the paper's
separabilities above 50 are out of reach of features after a ReLU without centring, and the one above 50.505
unless every pair counts the same, so that large classes weigh more.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ltnb.geometry.inputs import class_subset, labelled_rows, rows, square
from ltnb.geometry.means import Centring, centred, class_sums, global_mean, row_norms


def _directions_by_class(
    features: Tensor, labels: Tensor, num_classes: int, centring: Centring
) -> tuple[Tensor, Tensor]:
    """Sum (K, d) and number (K, 1) of the directions u_i of each class; a feature at the centre has none."""
    features, labels, _ = labelled_rows(features, labels, num_classes)
    offsets = centred(features, global_mean(features, labels, num_classes, centring=centring))
    lengths = row_norms(offsets)
    has_direction = lengths > 0
    directions = offsets / lengths.where(has_direction, 1)
    return class_sums(directions, labels, num_classes), class_sums(has_direction.double(), labels, num_classes)


def compactness(features: Tensor, labels: Tensor, num_classes: int, *, centring: Centring) -> Tensor:
    """E_k = 100 · mean over pairs i ≠ j of class k of (1 + u_i·u_j)/2, with u_i = (x_i − μ_G)/‖x_i − μ_G‖.

    The intra-class compactness of BCE3S, reconstructed (see the module's note). All pairs come from one sum a
    class: Σ_{i≠j} u_i·u_j = ‖Σ_i u_i‖² − n_k.

    Args:
        features: x (N, d), any floating dtype.
        labels: y (N,), integers in 0 … K−1.
        num_classes: K, at least 2.
        centring: μ_G, as in `global_mean`.

    Returns:
        (K,) float64 in [0, 100]; 100 if the class points in one direction, about 50 if in every direction.
        NaN for a class of one sample, which has no pair. A feature at μ_G has no direction, and its pairs are
        left out.

    Raises:
        ValueError: as in `global_mean`.
    """
    sums, numbers = _directions_by_class(features, labels, num_classes, centring)
    numbers = numbers.squeeze(1)
    cosines = (sums.square().sum(dim=1) - numbers) / (numbers * (numbers - 1))
    # Rounding leaves a class without pairs at ±1e-16/0, which is not NaN.
    return (50 * (1 + cosines)).clamp(0, 100).where(numbers > 1, torch.nan)


def separability(features: Tensor, labels: Tensor, num_classes: int, *, centring: Centring) -> Tensor:
    """E_k = 100 · mean over i in class k, j not, of (1 − u_i·u_j)/2, with u_i = (x_i − μ_G)/‖x_i − μ_G‖.

    The inter-class separability of BCE3S, reconstructed (see the module's note). Every pair counts the same,
    so on imbalanced features the head classes dominate what a class is compared with. A collapsed regular
    simplex gives 50 (1 + 1/(K−1)). All pairs come from the sums U_k of the u_i of each class: U_k·Σ_{l≠k}
    U_l.

    Args:
        features, labels, num_classes, centring: as in `compactness`.

    Returns:
        (K,) float64 in [0, 100], the larger the further the class lies from the others. A feature at μ_G has
        no direction, and its pairs are left out; NaN for a class left without any pair.

    Raises:
        ValueError: as in `global_mean`.
    """
    sums, numbers = _directions_by_class(features, labels, num_classes, centring)
    cosines = (sums * (sums.sum(dim=0) - sums)).sum(dim=1) / (numbers * (numbers.sum() - numbers)).squeeze(1)
    return (50 * (1 - cosines)).clamp(0, 100)


def classifier_separability(weight: Tensor) -> Tensor:
    """E_k = 100/(K−1) · Σ_{j≠k} (1 − cos(w_k, w_j))/2.

    The separability of classifier vectors in BCE3S, reconstructed (see the module's note): `separability`
    with one vector a class. It is 50 (1 + 1/(K−1)) for every class at a regular simplex, and no mean over
    classes is larger.

    Args:
        weight: w (K, d), one row a class, K at least 2.

    Returns:
        (K,) float64 in [0, 100]. A zero vector has no direction: NaN for its class, and left out for the
        others.

    Raises:
        ValueError: K < 2, or a row that is not finite (the first is named).
    """
    weight = rows("weight", weight)
    classes = torch.arange(len(weight), device=weight.device)
    return separability(weight, classes, len(weight), centring="none")


class PairSeparability(NamedTuple):
    """Separability by what a pair of classes consists of; see `pair_separability`."""

    head_head: float
    head_tail: float
    tail_tail: float


def pair_separability(cosines: Tensor, tail: Tensor) -> PairSeparability:
    """100 · mean over pairs j < k of (1 − C_jk)/2, for pairs of two heads, of a head and a tail, and of two tails.

    What BCE3S says of a classifier's imbalance is said of such pairs: under a long tail heads lie far apart, tails
    close together. At a regular simplex all three are 50 (1 + 1/(K−1)).

    Args:
        cosines: C (K, K), from `cosine_matrix` (classifier, prototypes) or `class_cosines` (features).
        tail: indices of the tail classes in 0 … K−1, each once; the others are heads.

    Returns:
        Three floats in [0, 100]; NaN where there is no such pair, or one of its classes has no direction.

    Raises:
        ValueError: `cosines` is not square, or `tail` is not a list of distinct class indices.
    """
    cosines = square("cosines", cosines).double()
    is_tail = torch.zeros(len(cosines), dtype=torch.bool, device=cosines.device)
    is_tail[class_subset("tail", tail, len(cosines))] = True
    j, k = torch.triu_indices(len(cosines), len(cosines), offset=1, device=cosines.device)
    separabilities, tails_in_pair = 50 * (1 - cosines[j, k]), is_tail[j].long() + is_tail[k].long()
    return PairSeparability(*(float(separabilities[tails_in_pair == number].mean()) for number in range(3)))
