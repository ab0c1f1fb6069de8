"""Label noise: which labels are given instead of the true ones, and how much of it came about.

Every sample is drawn for itself. The usual code relabels exactly ⌊η N/K⌋ samples of every class instead, which a class
of one image cannot give.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ltnb.data.transitions import Rate, check_mapping, check_rates, transition_rows


def symmetric_noise(y: Tensor, rate: Rate, num_classes: int, *, seed: int) -> Tensor:
    """ỹᵢ = (yᵢ + oᵢ) mod K if uᵢ < η_y(i), else yᵢ, with uᵢ ~ U[0, 1) and oᵢ ~ U{1 … K−1} for every sample apart.

    So a sample is flipped with the probability of its class's rate, to each *other* class alike. Neither u nor o
    depends on the rate: of one seed, what is flipped at a rate is flipped to the same class at every higher one.

    Args:
        y: true classes 0 … K−1, integers of any type and shape.
        rate: η in [0, 1), one for all or one for each class.
        num_classes: K ≥ 2.
        seed: decides all draws; torch's global generator has no part in them.

    Returns:
        The labels that are given, a new tensor of the same shape and type.

    Raises:
        ValueError: a rate outside [0, 1), another number of rates, a label outside 0 … K−1.
        TypeError: labels that are not integers.

    >>> symmetric_noise(torch.tensor([0, 1, 2, 3, 4, 5]), 0.5, num_classes=6, seed=0)
    tensor([0, 5, 1, 1, 4, 5])
    """
    if num_classes < 2:
        raise ValueError(f"num_classes = {num_classes}: expected at least 2, so that there is another class")
    rates = check_rates(rate, num_classes)
    classes = _checked(y, num_classes)
    flipped, generator = _flipped(classes, rates, seed)
    offsets = torch.from_numpy(generator.integers(1, num_classes, size=tuple(classes.shape)))
    return torch.where(flipped, (classes + offsets) % num_classes, classes).to(y)


def asymmetric_noise(
    y: Tensor, rate: Rate, mapping: Mapping[int, int], *, seed: int, num_classes: int | None = None
) -> Tensor:
    """ỹᵢ = m(yᵢ) if uᵢ < η_y(i) and m is defined for yᵢ, else yᵢ, with uᵢ ~ U[0, 1) for every sample apart.

    All samples are drawn from their true classes in one go. Code that relabels one class after the other flips some
    of what it has flipped back again where two classes are mistaken for each other. What is flipped at a rate is
    flipped at every higher one of the same seed, and by `symmetric_noise`, too.

    Args:
        y: true classes 0 … K−1, integers of any type and shape.
        rate: η in [0, 1), one for all classes of the mapping or one for each of the K classes.
        mapping: m, {class: the class that it is mistaken for}; `ltnb.data.mappings.MAPPINGS` has the papers'.
        seed: decides all draws; torch's global generator has no part in them.
        num_classes: K. By default the number of rates where there are several, else the largest label and one.

    Returns:
        The labels that are given, a new tensor of the same shape and type.

    Raises:
        ValueError: a rate outside [0, 1), another number of rates, a label outside 0 … K−1, a mapping that is empty,
            from or to a class outside 0 … K−1, or of a class to itself; neither labels nor K.
        TypeError: labels that are not integers.

    >>> asymmetric_noise(torch.tensor([3, 3, 3, 5, 5, 5, 0]), 0.5, {3: 5, 5: 3}, seed=0)
    tensor([3, 5, 5, 3, 5, 5, 0])
    """
    num_classes = _number_of_classes(y, rate) if num_classes is None else num_classes
    rates = check_rates(rate, num_classes)
    check_mapping(mapping, num_classes)
    classes = _checked(y, num_classes)
    flipped, _ = _flipped(classes, rates, seed)
    targets = torch.arange(num_classes)
    targets[list(mapping)] = torch.tensor(list(mapping.values()))
    return torch.where(flipped, targets[classes], classes).to(y)


def transition_matrix(rate: Rate, num_classes: int, mapping: Mapping[int, int] | None = None) -> Tensor:
    """T_ij = P(given label j | true class i), as it is wanted.

    Symmetric noise, without a mapping: T_ii = 1 − η_i and T_ij = η_i/(K−1). Asymmetric: T_ii = 1 − η_i and
    T_im(i) = η_i for the classes of the mapping m, T_ii = 1 for the others.

    Args:
        rate: η in [0, 1), one for all or one for each class.
        num_classes: K ≥ 2.
        mapping: m, {class: the class that it is mistaken for}.

    Returns:
        (K, K) float64, rows sum to 1.

    Raises:
        ValueError: what `symmetric_noise` and `asymmetric_noise` refuse.

    >>> transition_matrix(0.2, 3)
    tensor([[0.8000, 0.1000, 0.1000],
            [0.1000, 0.8000, 0.1000],
            [0.1000, 0.1000, 0.8000]], dtype=torch.float64)
    """
    return torch.tensor(transition_rows(rate, num_classes, mapping), dtype=torch.float64)


def realised_transition_matrix(clean: Tensor, given: Tensor, num_classes: int) -> Tensor:
    """T̂_ij = |{n: yₙ = i, ỹₙ = j}| / |{n: yₙ = i}|, as it came about.

    Args:
        clean: (N,) true classes y in 0 … K−1.
        given: (N,) labels ỹ in 0 … K−1.
        num_classes: K.

    Returns:
        (K, K) float64, rows sum to 1. The row of a class without a sample is NaN: nothing was seen of it.

    >>> realised_transition_matrix(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 1, 1]), num_classes=2)
    tensor([[0.3333, 0.6667],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    clean, given = _checked(clean, num_classes), _checked(given, num_classes)
    if clean.shape != given.shape:
        raise ValueError(f"given has shape {tuple(given.shape)}: expected a label for each of {tuple(clean.shape)}")
    pairs = torch.bincount((clean * num_classes + given).flatten(), minlength=num_classes**2)
    counts = pairs.reshape(num_classes, num_classes).double()
    return counts / counts.sum(dim=1, keepdim=True)


def _number_of_classes(y: Tensor, rate: Rate) -> int:
    if not isinstance(rate, int | float):
        return len(rate)
    if not y.numel():
        raise ValueError("y is empty: expected num_classes to be given")
    return int(y.max()) + 1


def _checked(y: Tensor, num_classes: int) -> Tensor:
    """Return the labels as int64 on the CPU, where the draws are made."""
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise TypeError(f"labels are {y.dtype}: expected integers")
    classes = y.detach().cpu().long()
    if classes.numel() and not 0 <= int(classes.min()) <= int(classes.max()) < num_classes:
        raise ValueError(f"labels = {int(classes.min())} … {int(classes.max())}: expected 0 … {num_classes - 1}")
    return classes


def _flipped(classes: Tensor, rates: list[float], seed: int) -> tuple[Tensor, np.random.Generator]:
    """Return which samples lose their label, and the generator as that leaves it.

    NumPy's generator has another algorithm than torch's, which shuffles the samples for the long tail. So the same
    seed may be used for both, and the draws have nothing to do with each other.
    """
    generator = np.random.default_rng(seed)
    draws = torch.from_numpy(generator.random(tuple(classes.shape)))
    return draws < torch.tensor(rates, dtype=torch.float64)[classes], generator
