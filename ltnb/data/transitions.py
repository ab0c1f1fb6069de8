"""Label noise as a transition matrix, T_ij = P(given label j | true class i). Without torch, for the settings."""

from collections.abc import Mapping, Sequence

Rate = float | Sequence[float]


def check_rates(rate: Rate, num_classes: int) -> list[float]:
    """η_i of each of K classes, from one rate for all or one a class.

    Raises:
        ValueError: a rate outside [0, 1), NaN among them, or rates for another number of classes.
    """
    rates = [float(rate)] * num_classes if isinstance(rate, int | float) else [float(each) for each in rate]
    if len(rates) != num_classes:
        raise ValueError(f"rate has {len(rates)} numbers: expected one, or one for each of {num_classes} classes")
    for value in rates:
        if not 0 <= value < 1:
            raise ValueError(f"rate = {value:g}: expected a probability of at least 0 and below 1")
    return rates


def check_mapping(mapping: Mapping[int, int], num_classes: int) -> None:
    """Refuse a mapping that is empty, from or to a class outside 0 … K−1, or of a class to itself."""
    if not mapping:
        raise ValueError("mapping is empty: expected at least one class that is mistaken for another")
    for source, target in mapping.items():
        for unknown in (source, target):
            if not 0 <= unknown < num_classes:
                raise ValueError(f"mapping {source} → {target}: class {unknown}: expected 0 … {num_classes - 1}")
        if source == target:
            raise ValueError(f"mapping {source} → {target}: expected another class")


def transition_rows(rate: Rate, num_classes: int, mapping: Mapping[int, int] | None = None) -> list[list[float]]:
    """The rows of `ltnb.data.transition_matrix`, as lists."""
    if num_classes < 2:
        raise ValueError(f"num_classes = {num_classes}: expected at least 2, so that there is another class")
    rates = check_rates(rate, num_classes)
    if mapping is None:
        others = num_classes - 1
        return [[1 - eta if i == j else eta / others for j in range(num_classes)] for i, eta in enumerate(rates)]
    check_mapping(mapping, num_classes)
    rows = [[float(i == j) for j in range(num_classes)] for i in range(num_classes)]
    for source, target in mapping.items():
        rows[source][source], rows[source][target] = 1 - rates[source], rates[source]
    return rows
