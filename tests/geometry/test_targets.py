import itertools
import math

import pytest
import torch
from torch.nn.functional import normalize

from ltnb.geometry import assign_targets, regular_simplex, simplex_cosine, target_energy, uniform_targets


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def random_rows(num_rows, dim, seed=0):
    return normalize(torch.randn(num_rows, dim, dtype=torch.float64, generator=seeded(seed)), dim=1)


def smallest_angle(targets):
    """In degrees, by loops."""
    pairs = itertools.combinations(targets, 2)
    return min(math.degrees(math.acos(max(-1.0, min(1.0, float(a @ b))))) for a, b in pairs)


def naive(targets, temperature):
    rows = targets.tolist()
    logs = [
        math.log(sum(math.exp(sum(a * b for a, b in zip(row, other, strict=True)) / temperature) for other in rows))
        for row in rows
    ]
    return sum(logs) / len(logs)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_energy_equals_its_definition(temperature):
    targets = random_rows(7, 3)
    assert target_energy(targets, temperature=temperature) == pytest.approx(naive(targets, temperature), rel=1e-12)
    in_single = target_energy(targets.float(), temperature=temperature)
    assert in_single == pytest.approx(naive(targets, temperature), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.2, 1.0])
@pytest.mark.parametrize(("num_targets", "dim"), [(2, 1), (4, 3), (5, 9)])
def test_a_simplex_has_the_least_energy(num_targets, dim, temperature):
    bound = math.log(
        math.exp(1 / temperature) + (num_targets - 1) * math.exp(simplex_cosine(num_targets) / temperature)
    )
    simplex = regular_simplex(num_targets, dim)
    assert target_energy(simplex, temperature=temperature) == pytest.approx(bound, rel=1e-12)
    for seed in range(20):
        near = normalize(simplex + 0.3 * random_rows(num_targets, dim, seed), dim=1)
        for other in (near, random_rows(num_targets, dim, seed)):
            assert target_energy(other, temperature=temperature) >= bound - 1e-12


@pytest.mark.parametrize(("num_targets", "dim"), [(2, 1), (4, 3), (10, 9), (10, 64)])
def test_targets_are_a_simplex_where_it_fits(num_targets, dim):
    assert torch.equal(uniform_targets(num_targets, dim), regular_simplex(num_targets, dim))
    turned = uniform_targets(num_targets, dim, generator=seeded(1))
    assert torch.equal(turned, regular_simplex(num_targets, dim, generator=seeded(1)))


# Configurations that are best for every sum over pairs that falls with distance (Cohn and Kumar 2007), and whose points
# all see the same: the regular polygon, octahedron, icosahedron and cross-polytope.
@pytest.mark.parametrize("temperature", [0.07, 0.5])
@pytest.mark.parametrize(
    ("num_targets", "dim", "angle"), [(10, 2, 36.0), (6, 3, 90.0), (12, 3, 63.43495), (8, 4, 90.0)]
)
def test_search_reaches_the_known_optimum(num_targets, dim, angle, temperature):
    targets = uniform_targets(num_targets, dim, temperature=temperature)
    assert targets.dtype == torch.float64
    assert targets.shape == (num_targets, dim)
    torch.testing.assert_close(targets.norm(dim=1), torch.ones(num_targets, dtype=torch.float64))
    assert smallest_angle(targets) == pytest.approx(angle, abs=1e-3)


def test_search_ends_below_where_it_began_and_where_few_steps_take_it():
    energies = [
        target_energy(targets, temperature=0.07)
        for targets in (
            random_rows(30, 6),
            uniform_targets(30, 6, steps=20),
            uniform_targets(30, 6),
        )
    ]
    assert energies[0] > energies[1] > energies[2]


def test_search_has_come_to_rest():
    # Five points in space are hard: steps of constant length go on throwing the closest pairs apart.
    above_itself = [target_energy(uniform_targets(5, 3, steps=n), temperature=0.07) - 1 / 0.07 for n in (1000, 3000)]
    assert above_itself[0] == pytest.approx(above_itself[1], rel=0.01)


def test_one_step_is_the_gradient_of_the_energy():
    num_targets, dim, temperature = 6, 3, 0.4
    start = torch.randn(num_targets, dim, generator=seeded(4), dtype=torch.float64)
    start = normalize(start, dim=1).requires_grad_()
    weights = torch.softmax(start @ start.T / temperature, dim=1)
    others = (weights.sum() - weights.diagonal().sum()).detach() / num_targets
    energy = torch.logsumexp(start @ start.T / temperature, dim=1).sum()
    (gradient,) = torch.autograd.grad(energy, start)
    gradient = temperature * gradient / others
    start = start.detach()
    tangent = gradient - (gradient * start).sum(dim=1, keepdim=True) * start
    found = uniform_targets(num_targets, dim, temperature=temperature, steps=1, generator=seeded(4))
    torch.testing.assert_close(found, normalize(start - temperature * tangent, dim=1))


@pytest.mark.parametrize("temperature", [1e-4, 100.0])
def test_a_temperature_out_of_proportion_still_gives_unit_rows(temperature):
    targets = uniform_targets(6, 3, temperature=temperature, steps=50)
    torch.testing.assert_close(targets.norm(dim=1), torch.ones(6, dtype=torch.float64))
    assert smallest_angle(targets) > 20


def test_same_targets_each_time_and_others_with_another_seed():
    assert torch.equal(uniform_targets(7, 3, steps=50), uniform_targets(7, 3, steps=50))
    first, again, other = (uniform_targets(7, 3, steps=50, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_assignment_is_the_best_of_all_permutations(dtype):
    for seed in range(5):
        centres = torch.randn(5, 4, generator=seeded(seed), dtype=torch.float64).to(dtype)
        targets = uniform_targets(5, 4, generator=seeded(seed + 100))
        found = assign_targets(centres, targets)
        assert found.dtype == torch.int64
        similarities = (centres.double() @ targets.T).tolist()
        best = max(itertools.permutations(range(5)), key=lambda order: sum(similarities[k][order[k]] for k in range(5)))
        assert found.tolist() == list(best)


def test_classes_at_their_targets_keep_them():
    targets, order = uniform_targets(6, 5), torch.tensor([3, 0, 5, 1, 4, 2])
    assert torch.equal(assign_targets(targets[order].requires_grad_(), targets), order)


def test_assignment_is_one_to_one_where_the_nearest_target_is_not():
    targets = torch.eye(2, dtype=torch.float64)
    assert assign_targets(torch.tensor([[0.9, 0.1], [1.0, 0.0]]), targets).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: target_energy(torch.ones(3, 2), temperature=0.1), "targets must have rows of unit length, but row 0"),
        (lambda: target_energy(torch.eye(3), temperature=0.0), r"temperature must be a positive number, got 0\.0"),
        (lambda: target_energy(torch.ones(1, 1), temperature=0.1), "num_classes must be at least 2, got 1"),
        (lambda: uniform_targets(1, 2), "num_classes must be at least 2, got 1"),
        (lambda: uniform_targets(4, 0), "dim must be at least 1, got 0"),
        (lambda: uniform_targets(4, 2, temperature=math.nan), "temperature must be a positive number, got nan"),
        (lambda: uniform_targets(4, 2, steps=0), "steps must be at least 1, got 0"),
        (
            lambda: assign_targets(torch.eye(3), torch.eye(4)),
            r"one row for each target .* got shape \(3, 3\) .* \(4, 4\)",
        ),
        (lambda: assign_targets(torch.full((2, 2), math.nan), torch.eye(2)), "class_centres must be finite, but row 0"),
        (lambda: assign_targets(torch.eye(2), 2 * torch.eye(2)), "targets must have rows of unit length, but row 0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
