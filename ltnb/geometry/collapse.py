"""How tightly each class sits around its mean, beside how far apart the means are."""

from typing import Literal

import torch
from torch import Tensor

from ltnb.geometry.inputs import labelled_rows
from ltnb.geometry.means import centred, class_means, class_sums


def within_class_variability(
    features: Tensor, labels: Tensor, num_classes: int, *, centring: Literal["class", "sample"]
) -> float:
    """NC1 = tr(Σ_W Σ_B⁺)/K: within-class covariance, measured in units of the between-class covariance.

        Σ_W = Σ_k π_k (1/n_k) Σ_{i: y_i = k} (x_i − μ_k)(x_i − μ_k)ᵀ,   Σ_B = Σ_k π_k (μ_k − μ_G)(μ_k − μ_G)ᵀ

    Variability collapse (Papyan, Han & Donoho 2020), who have balanced data. Under imbalance the weights π_k
    must be chosen, and the centre has to match: "class" has π_k = 1/K and μ_G the mean of class means,
    "sample" π_k = n_k/N and μ_G the mean of samples. Either way Σ_W + Σ_B is the covariance of the features
    under those weights.

    Σ_B⁺ is the pseudo-inverse: variation outside the span of the centred class means is not counted. It comes
    from the thin singular value decomposition of the K weighted means, without any d × d matrix; like
    `torch.linalg.pinv`, it drops eigenvalues of Σ_B at or below max(K, d) · 2.2e-16 of the largest one.

    Args:
        features: x (N, d), any floating dtype.
        labels: y (N,), integers in 0 … K−1. A class of one sample adds nothing to Σ_W.
        num_classes: K, at least 2.
        centring: the weights π_k and the centre μ_G.

    Returns:
        A float, 0 under collapse; NaN if all class means coincide.

    Raises:
        ValueError: as in `class_means`, or `centring` is neither of the two.
    """
    if centring not in ("class", "sample"):
        raise ValueError(f"centring must be 'class' or 'sample' (it also weights the covariances), got {centring!r}")
    features, labels, counts = labelled_rows(features, labels, num_classes)
    means = class_means(features, labels, num_classes)
    sizes = torch.ones_like(counts) if centring == "class" else counts
    class_weights = sizes.to(means.dtype) / sizes.sum()
    between = class_weights.sqrt()[:, None] * centred(means, class_weights @ means)
    _, singular_values, directions = torch.linalg.svd(between, full_matrices=False)
    if singular_values[0] == 0:
        return float("nan")
    eigenvalues = singular_values.square()
    kept = eigenvalues > max(between.shape) * torch.finfo(between.dtype).eps * eigenvalues[0]
    within = (features - means[labels]) @ directions[kept].T / singular_values[kept]
    return float(within.square().sum(dim=1) @ (class_weights / counts)[labels]) / num_classes


def class_distance_normalised_variance(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """V_jk = (Var_j + Var_k) / (2 ‖μ_j − μ_k‖²), with Var_k = (1/n_k) Σ_{i: y_i = k} ‖x_i − μ_k‖².

    CDNV (Galanti, György & Hutter 2022): variability collapse for each pair of classes. It needs no centre,
    no class weights and no inverse, and shows which pairs of classes run together.

    Args:
        features, labels, num_classes: as in `class_means`. A class of one sample has Var_k = 0.

    Returns:
        (K, K) float64, symmetric, at least 0, with NaN on the diagonal. Where two means coincide: inf, or NaN
        if neither class varies.

    Raises:
        ValueError: as in `class_means`.
    """
    features, labels, counts = labelled_rows(features, labels, num_classes)
    means = class_means(features, labels, num_classes)
    squares = (features - means[labels]).square().sum(dim=1, keepdim=True)
    variances = class_sums(squares, labels, num_classes) / counts[:, None]
    # Distances from inner products would lose the pairs that matter most, those with means close together.
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    ratios = (variances + variances.T) / (2 * distances.square())
    ratios.fill_diagonal_(torch.nan)
    return ratios
