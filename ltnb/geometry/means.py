"""Where the classes lie: their means, the angles between these, their lengths, the classifier beside them."""

from typing import Literal, get_args

import torch
from torch import Tensor

from ltnb.geometry.inputs import class_subset, labelled_rows, rows, square

Centring = Literal["class", "sample", "none"]

# A difference of two float64 vectors this small beside the vectors themselves is rounding, not a direction.
ROUNDING = 1e-12


def row_norms(vectors: Tensor) -> Tensor:
    """(N, 1): the Euclidean length of each row of `vectors` (N, d)."""
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return norms


def class_sums(vectors: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(K, d): row k is the sum of the rows of `vectors` (N, d) labelled k."""
    return vectors.new_zeros(num_classes, vectors.shape[1]).index_add_(0, labels, vectors)


def centred(vectors: Tensor, centre: Tensor) -> Tensor:
    """`vectors` (N, d) minus `centre` (d,); a row that differs from it by rounding only becomes zero."""
    differences = vectors - centre
    return differences.masked_fill_(row_norms(differences) <= ROUNDING * row_norms(vectors).max(), 0)


def _centre(features: Tensor, means: Tensor, centring: Centring) -> Tensor:
    """μ_G (d,) of checked features (N, d), whose class means (K, d) are known."""
    if centring == "class":
        return means.mean(dim=0)
    if centring == "sample":
        return features.detach().double().mean(dim=0)
    if centring == "none":
        return torch.zeros_like(means[0])
    raise ValueError(f"centring must be one of {', '.join(map(repr, get_args(Centring)))}; got {centring!r}")


def cosine_matrix(vectors: Tensor) -> Tensor:
    """cos(v_j, v_k) for every pair of rows.

    Args:
        vectors: v (K, d): classifier weights, prototypes, class means.

    Returns:
        (K, K) float64 in [−1, 1], with 1 on the diagonal; NaN in the row and column of a zero vector, which
        has no direction.

    Raises:
        ValueError: a row is not finite (the first is named).
    """
    vectors = rows("vectors", vectors)
    directions = vectors / row_norms(vectors)
    cosines: Tensor = (directions @ directions.T).clamp_(-1, 1)
    # A direction has cosine 1 with itself, not 1 − 1e-16, which arccos would turn into a visible angle.
    cosines.diagonal().round_()
    return cosines


def class_means(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """μ_k = (1/n_k) Σ_{i: y_i = k} x_i.

    Args:
        features: x (N, d), any floating dtype.
        labels: y (N,), integers in 0 … K−1.
        num_classes: K, at least 2.

    Returns:
        (K, d) float64.

    Raises:
        ValueError: K < 2; a label outside 0 … K−1; a class without a sample (named), since no mean stands for
            it; a feature that is not finite (the first such row is named).
    """
    features, labels, counts = labelled_rows(features, labels, num_classes)
    return class_sums(features, labels, num_classes) / counts[:, None]


def global_mean(features: Tensor, labels: Tensor, num_classes: int, *, centring: Centring) -> Tensor:
    """μ_G = (1/K) Σ_k μ_k ("class"), (1/N) Σ_i x_i ("sample"), or 0 ("none").

    Neural collapse was stated for balanced data, where the first two agree. Under a long tail the mean of
    samples lies beside the head classes, and angles seen from there differ: the regular simplex is centred at
    the mean of its vertices, so "class" is the choice that can find it.

    Args:
        features, labels, num_classes: as in `class_means`.
        centring: which of the three.

    Returns:
        (d,) float64.

    Raises:
        ValueError: as in `class_means`, or `centring` is none of the three.
    """
    return _centre(features, class_means(features, labels, num_classes), centring)


def centred_class_means(features: Tensor, labels: Tensor, num_classes: int, *, centring: Centring) -> Tensor:
    """μ_k − μ_G, with μ_G by `centring` as in `global_mean`.

    Args:
        features, labels, num_classes, centring: as in `global_mean`.

    Returns:
        (K, d) float64. A row whose length is below 1e-12 of the longest class mean is rounding and becomes
        exactly zero, so that measures of direction answer NaN there rather than noise.

    Raises:
        ValueError: as in `global_mean`.
    """
    means = class_means(features, labels, num_classes)
    return centred(means, _centre(features, means, centring))


def class_cosines(features: Tensor, labels: Tensor, num_classes: int, *, centring: Centring) -> Tensor:
    """cos(μ_j − μ_G, μ_k − μ_G) for every pair of classes; −1/(K−1) off the diagonal at a regular simplex.

    Equiangularity, half of NC2 (Papyan, Han & Donoho 2020).

    Args:
        features, labels, num_classes, centring: as in `global_mean`.

    Returns:
        (K, K) float64 in [−1, 1], with 1 on the diagonal; NaN in the row and column of a class whose mean
        lies at μ_G.

    Raises:
        ValueError: as in `global_mean`.
    """
    return cosine_matrix(centred_class_means(features, labels, num_classes, centring=centring))


def class_angles(features: Tensor, labels: Tensor, num_classes: int, *, centring: Centring) -> Tensor:
    """arccos of `class_cosines`, in degrees; arccos(−1/(K−1)) off the diagonal at a regular simplex.

    Args:
        features, labels, num_classes, centring: as in `global_mean`.

    Returns:
        (K, K) float64 in [0, 180], with 0 on the diagonal; NaN as in `class_cosines`.

    Raises:
        ValueError: as in `global_mean`.
    """
    return class_cosines(features, labels, num_classes, centring=centring).arccos().rad2deg()


def minority_collapse_angle(cosines: Tensor, tail: Tensor) -> float:
    """Mean over pairs j < k in T of arccos C_jk, in degrees: the angle that is left between the tail classes.

    Minority collapse (Fang, He, Long & Su 2021): beyond a finite imbalance the classes of the tail share one
    direction, and this angle is 0; at a regular simplex it is arccos(−1/(K−1)). They state it for the
    classifier's vectors; FeatRecon's θ_2 is the same angle between class centres.

    Args:
        cosines: C (K, K), from `class_cosines` (features) or `cosine_matrix` (classifier, prototypes).
        tail: T, indices of the tail classes in 0 … K−1, each once.

    Returns:
        A float in [0, 180]; NaN if the tail has fewer than two classes, or one of them no direction.

    Raises:
        ValueError: `cosines` is not square, or `tail` is not a list of distinct class indices.
    """
    cosines = square("cosines", cosines)
    tail = class_subset("tail", tail, len(cosines))
    among_tail = cosines.double()[tail[:, None], tail]
    first, second = torch.triu_indices(len(tail), len(tail), offset=1, device=cosines.device)
    return float(among_tail[first, second].clamp(-1, 1).arccos().rad2deg().mean())


def classifier_alignment(weight: Tensor, means: Tensor) -> Tensor:
    """cos(w_k, μ_k − μ_G): does each classifier vector point at its own class?

    Self-duality NC3 (Papyan, Han & Donoho 2020), class by class; all ones under neural collapse.

    Args:
        weight: w (K, d), the classifier's rows. Softmax ignores a vector added to all of them; pass
            `weight - weight.mean(dim=0)` to leave that part out.
        means: μ_k − μ_G (K, d), from `centred_class_means`.

    Returns:
        (K,) float64 in [−1, 1]; NaN where either vector is zero.

    Raises:
        ValueError: the shapes differ, or a row is not finite.
    """
    if weight.shape != means.shape:
        raise ValueError(
            f"weight and means must have one shape (K, d), got {tuple(weight.shape)} and {tuple(means.shape)}"
        )
    weight, means = rows("weight", weight), rows("means", means)
    cosines = (weight / row_norms(weight) * (means / row_norms(means))).sum(dim=1)
    return cosines.clamp(-1, 1)


def feature_norms(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(1/n_k) Σ_{i: y_i = k} ‖x_i‖: the mean length of the features of each class.

    Args:
        features, labels, num_classes: as in `class_means`.

    Returns:
        (K,) float64, at least 0.

    Raises:
        ValueError: as in `class_means`.
    """
    features, labels, counts = labelled_rows(features, labels, num_classes)
    return class_sums(row_norms(features), labels, num_classes).squeeze(1) / counts
