"""What every measurement checks before it measures."""

import torch
from torch import Tensor


def check_num_classes(num_classes: int) -> None:
    """Raise ValueError unless there are two classes to compare."""
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")


def check_matrix(name: str, vectors: Tensor) -> None:
    """Raise ValueError unless `vectors` is a non-empty floating-point matrix."""
    if vectors.ndim != 2 or 0 in vectors.shape or not vectors.is_floating_point():
        raise ValueError(
            f"{name} must be a non-empty floating-point matrix, one vector a row; "
            f"got shape {tuple(vectors.shape)}, dtype {vectors.dtype}"
        )


def rows(name: str, vectors: Tensor, first: int = 0) -> Tensor:
    """`vectors` (N, d) in float64, detached; ValueError naming the first row that is not finite, from `first` on."""
    check_matrix(name, vectors)
    finite = vectors.isfinite().all(dim=1)
    if not finite.all():
        raise ValueError(f"{name} must be finite, but row {first + int(finite.logical_not().nonzero()[0])} is not")
    return vectors.detach().double()


def unit_rows(name: str, vectors: Tensor, first: int = 0) -> Tensor:
    """`rows`; ValueError naming the first row not of unit length within 1 %, which bfloat16 needs."""
    vectors = rows(name, vectors, first)
    lengths = torch.linalg.vector_norm(vectors, dim=1)
    off = (lengths - 1).abs() > 0.01
    if off.any():
        row = int(off.nonzero()[0])
        raise ValueError(
            f"{name} must have rows of unit length, but row {first + row} has length {float(lengths[row]):.4g}"
        )
    return vectors


def class_indices(name: str, indices: Tensor) -> Tensor:
    """`indices` (N,) as int64; ValueError unless they are a vector of integers."""
    if indices.ndim != 1 or indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise ValueError(
            f"{name} must be a vector of integers, got shape {tuple(indices.shape)}, dtype {indices.dtype}"
        )
    return indices.long()


def row_labels(labels: Tensor, num_rows: int) -> Tensor:
    """`labels` (N,) as int64; ValueError unless there is one for each of the `num_rows` rows."""
    labels = class_indices("labels", labels)
    if len(labels) != num_rows:
        raise ValueError(f"labels must hold one class for each of the {num_rows} rows, got {len(labels)}")
    return labels


def labelled_rows(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Checked features (N, d) in float64, labels (N,) in int64 and class counts (K,), every one at least 1.

    Raises:
        ValueError: a feature is not finite, a label lies outside 0 … K−1, or a class has no sample.
    """
    check_num_classes(num_classes)
    features = rows("features", features)
    return features, *counted_labels(labels, len(features), num_classes)


def counted_labels(labels: Tensor, num_rows: int, num_classes: int) -> tuple[Tensor, Tensor]:
    """Checked labels (N,) of N rows in int64, and class counts (K,), every one at least 1; ValueError if not."""
    check_num_classes(num_classes)
    labels = row_labels(labels, num_rows)
    outside = (labels < 0) | (labels >= num_classes)
    if outside.any():
        raise ValueError(
            f"labels must lie in 0 … {num_classes - 1} for num_classes={num_classes}, got {int(labels[outside][0])}"
        )
    counts = torch.bincount(labels, minlength=num_classes)
    if (counts == 0).any():
        absent = (counts == 0).nonzero().flatten()
        raise ValueError(
            f"every class needs a sample, but class {int(absent[0])} has none in labels "
            f"({len(absent)} of {num_classes} classes absent)"
        )
    return labels, counts


def square(name: str, matrix: Tensor) -> Tensor:
    """`matrix` (K, K), detached; ValueError unless it is square."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {tuple(matrix.shape)}")
    return matrix.detach()


def class_subset(name: str, indices: Tensor, num_classes: int) -> Tensor:
    """`indices` as int64; ValueError unless they are distinct classes in 0 … K−1."""
    indices = class_indices(name, indices)
    values = indices.tolist()
    if len(set(values)) < len(values) or not all(0 <= value < num_classes for value in values):
        raise ValueError(f"{name} must hold distinct class indices in 0 … {num_classes - 1}, got {values}")
    return indices
