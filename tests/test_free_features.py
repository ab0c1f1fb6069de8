import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy, softplus

from ltnb import geometry
from ltnb.free_features import minimise
from ltnb.losses import balanced_contrastive, supervised_contrastive
from ltnb.theory import balanced_contrastive as balanced_theory


def softmax_loss(logits, y, *, reduction):
    return cross_entropy(logits, y, reduction=reduction)


def one_head(ratio, num_classes=4, tail_count=5):
    return [ratio * tail_count] + [tail_count] * (num_classes - 1)


def least_f(num_classes, a, ratio):
    """FeatRecon's Theorem 2 at τ = 1, as the paper prints it, least over the tails' best arrangement."""

    def f(x1):
        x2 = ((num_classes - 1) * x1**2 - 1) / (num_classes - 2)
        head, tails = ratio * a, (num_classes - 1) * a
        return head * math.log(head - 1 + math.exp(x1 - 1) * tails) + tails * math.log(
            a - 1 + math.exp(-1) * ((num_classes - 2) * a * math.exp(x2) + head * math.exp(x1))
        )

    inside = minimize_scalar(f, bounds=(-1, 0), method="bounded", options={"xatol": 1e-12})
    return min((inside.fun, inside.x), (f(-1), -1.0))


# The contrastive losses against what is known of their minima


@pytest.mark.parametrize("ratio", [1, 3, 8, 20])
def test_scl_meets_the_minimum_of_featrecon(ratio):
    found = minimise("supervised_contrastive", one_head(ratio), 3, starts=1, temperature=1.0)
    value, cosine = least_f(4, 5, ratio)
    assert found.loss == pytest.approx(value, rel=1e-11)
    assert found.cosines[0, 1:].tolist() == pytest.approx([cosine] * 3, abs=1e-6)
    assert found.gap < 1e-7 * found.loss


def test_scl_tails_coincide_beyond_the_collapse_ratio_only():
    a, k = 2, 4
    b1 = (k - 1) * (1 + math.exp(-2) - 2 * math.exp(2)) * a - 2
    b2 = 8 * (1 + math.exp(-2)) * (k - 1) * a * ((k - 1) * a - math.exp(2))
    threshold = (-b1 + math.sqrt(b1**2 + b2)) / (2 * (1 + math.exp(-2)) * a)
    below, above = math.floor(threshold) - 1, math.ceil(threshold) + 1
    tails = [
        minimise("supervised_contrastive", one_head(ratio, tail_count=a), 3, starts=1, temperature=1.0).cosines[1, 2]
        for ratio in (below, above)
    ]
    assert tails[0] < 0.9999
    assert tails[1] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("head", "minimum", "cosines"),
    [(5, 11.6532, (-0.333, -0.333)), (10, 14.4554, (-0.421, -0.234)), (40, 28.6149, (-0.717, 0.271))],
)
def test_bcl_falls_below_theorem_3_for_unequal_counts(head, minimum, cosines):
    counts = [head, 5, 5, 5]
    found = minimise("balanced_contrastive", counts, 3, prototypes=True, starts=1, temperature=1.0)
    assert found.loss == pytest.approx(minimum, abs=5e-5)
    assert (found.cosines[0, 1].item(), found.cosines[1, 2].item()) == pytest.approx(cosines, abs=6e-4)
    bound = sum(counts) * math.log(1 + 3 * math.exp(-4 / 3))
    assert found.loss == pytest.approx(bound, rel=1e-12) if head == 5 else found.loss < bound - 0.1
    assert found.gap < 1e-6


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_class_weighted_bcl_meets_theorem_3(temperature):
    settings = {"prototypes": True, "starts": 1, "anchor_weighting": "class", "temperature": temperature}
    found = minimise(balanced_contrastive, [40, 5, 5, 5], 3, **settings)
    assert found.loss == pytest.approx(55 * math.log(1 + 3 * math.exp(-4 / 3 / temperature)), rel=1e-9)
    assert geometry.simplex_distance(found.class_means) < 1e-4
    torch.testing.assert_close(found.prototypes, found.class_means, rtol=0, atol=1e-4)


def test_general_counts_collapse_within_classes_by_themselves():
    found = minimise(supervised_contrastive, [12, 7, 4, 2], 5, temperature=0.5)
    assert found.spread < 1e-5
    assert found.agreeing_starts == 4
    assert found.gap < 1e-6


# Classifiers


@pytest.mark.parametrize("constraint", ["sphere", "ball"])
def test_an_anchored_simplex_keeps_its_classes_under_any_counts(constraint):
    prototypes = geometry.regular_simplex(4, 3)
    settings = {"features": constraint, "classifier": prototypes, "radius": 2.0}
    found = minimise(softmax_loss, [50, 5, 2, 1], 3, starts=2, **settings)
    assert found.loss == pytest.approx(58 * math.log(1 + 3 * math.exp(-2 * 4 / 3)), rel=1e-12)
    torch.testing.assert_close(found.class_means, 2 * prototypes, rtol=0, atol=1e-6)
    assert found.gap < 1e-9
    assert torch.equal(found.weight, prototypes)


@pytest.mark.parametrize("constraint", ["sphere", "ball", "average"])
def test_balanced_cross_entropy_is_a_regular_simplex_under_each_constraint(constraint):
    found = minimise(
        softmax_loss, [3] * 4, 3, starts=2, features=constraint, classifier=constraint, radius=1.5, bias=True
    )
    assert found.loss == pytest.approx(12 * math.log(1 + 3 * math.exp(-1.5 * 4 / 3)), rel=1e-11)
    assert geometry.simplex_distance(found.class_means) < 1e-5
    assert found.gap < 1e-7


def test_vectors_keep_to_their_constraint():
    counts = [6, 3, 1]
    shares = torch.tensor([1 / (3 * n) for n in counts]).repeat_interleave(torch.tensor(counts))
    found = {
        constraint: minimise(
            softmax_loss, counts, 2, starts=1, features=constraint, classifier=constraint, radius=2.0, bias=True
        )
        for constraint in ("sphere", "ball", "average")
    }
    squares = {constraint: each.features.square().sum(dim=1) for constraint, each in found.items()}
    assert squares["sphere"].tolist() == pytest.approx([4] * 10)
    assert squares["ball"].max() <= 4 + 1e-12
    assert (squares["average"] * shares).sum() == pytest.approx(4, abs=1e-6)
    assert squares["average"].max() > 4.5
    assert found["average"].weight.square().sum() == pytest.approx(3)
    # What bounds less cannot do worse.
    assert found["average"].loss < found["ball"].loss + 1e-9
    assert found["ball"].loss <= found["sphere"].loss + 1e-9


def test_a_ball_lets_features_inside_where_they_belong():
    """One sample of either class at the same fixed classifier: noise that only shrinking can answer."""

    def soft_loss(logits, y, *, reduction):
        assert reduction == "sum"
        targets = torch.tensor([[0.7, 0.3], [0.3, 0.7]], dtype=torch.float64)
        return -(targets[y] * logits.log_softmax(dim=1)).sum()

    classifier = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    found = minimise(soft_loss, [1, 1], 2, features="ball", radius=3.0, classifier=classifier)
    assert found.class_means[0, 0] == pytest.approx(math.log(7 / 3) / 2, abs=1e-6)
    assert found.gap < 1e-6


def test_bce_joint_agrees_with_the_same_loss_written_on_logits():
    def sigmoid_loss(logits, y, *, reduction):
        assert reduction == "sum"
        return softplus(torch.where(torch.nn.functional.one_hot(y, 4).bool(), -logits, logits)).sum()

    settings = {"starts": 2, "radius": 1.5, "bias": True}
    ours = minimise("bce_joint", [4, 1, 1, 1], 3, **settings)
    plain = minimise(sigmoid_loss, [4, 1, 1, 1], 3, **settings)
    assert ours.loss == pytest.approx(plain.loss, rel=1e-11)
    torch.testing.assert_close(ours.bias, plain.bias, rtol=0, atol=1e-5)
    assert ours.gap < 1e-6


def test_class_counts_reach_a_loss_that_takes_them():
    adjusted = minimise("logit_adjusted_cross_entropy", [8, 2, 2], 2, starts=1)
    plain = minimise("logit_adjusted_cross_entropy", [8, 2, 2], 2, starts=1, tau=0)
    assert plain.loss == pytest.approx(minimise(softmax_loss, [8, 2, 2], 2, starts=1).loss)
    assert adjusted.loss != pytest.approx(plain.loss, rel=1e-3)


def test_a_memory_is_searched_like_prototypes():
    found = minimise("bce_contrastive", [3, 3], 2, prototypes=True, starts=2, temperature=1.0)
    assert found.loss == pytest.approx(6 * 2 * math.log(1 + math.exp(-1)), rel=1e-9)
    assert found.prototypes.shape == (2, 2)


# The certificate


def value_and_gap_of(loss, counts, dim, seed, **settings):
    """What `minimise` says where it is not let search: a configuration far from the minimum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ltnb.free_features.MAX_STEPS", 1)
        patch.setattr("ltnb.free_features.MAX_ROUNDS", 1)
        found = minimise(loss, counts, dim, starts=1, seed=seed, **settings)
    return found.loss, found.gap


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        ("supervised_contrastive", {"temperature": 0.7}),
        ("balanced_contrastive", {"temperature": 0.7, "prototypes": True}),
        (softmax_loss, {"radius": 2.0}),
        (softmax_loss, {"radius": 2.0, "features": "ball", "classifier": "ball"}),
        (softmax_loss, {"radius": 2.0, "features": "average", "classifier": "average"}),
        (softmax_loss, {"radius": 2.0, "features": "ball", "classifier": geometry.regular_simplex(3, 4)}),
        (softmax_loss, {"radius": 2.0, "features": "average", "classifier": geometry.regular_simplex(3, 4)}),
        ("bce_joint", {"radius": 2.0}),
    ],
    ids=lambda value: (
        value.__name__ if callable(value) else str(list(value)) if isinstance(value, dict) else str(value)
    ),
)
def test_the_gap_bounds_the_minimum_from_anywhere(loss, settings, seed):
    counts = [6, 3, 2]
    minimum = minimise(loss, counts, 4, starts=1, **settings)
    assert minimum.gap < 1e-6
    value, gap = value_and_gap_of(loss, counts, 4, seed, **settings)
    assert value > minimum.loss + 1e-3
    assert value - gap <= minimum.loss + 1e-9


def test_the_gap_is_that_of_the_theory():
    found = minimise("balanced_contrastive", [6, 3, 2], 1, prototypes=True, starts=1, temperature=0.8)
    vectors = (found.features.numpy(), found.labels.numpy(), found.prototypes.numpy())
    assert found.gap == pytest.approx(balanced_theory.optimality_gap(*vectors, temperature=0.8), rel=1e-8)
    assert found.gap > 0.1  # on a line three classes have no room, and more dimensions would help


def test_the_gap_tells_where_more_dimensions_would_help():
    """Four classes on a circle, and at the regular simplex that only three dimensions hold."""
    flat, full = (minimise(supervised_contrastive, [3] * 4, dim, starts=1, temperature=1.0) for dim in (2, 3))
    assert full.gap < 1e-6
    assert flat.loss - flat.gap <= full.loss < flat.loss - 0.1


@pytest.mark.parametrize("settings", [{"temperature": 1.001}, {"temperature": 1.0, "head_factor": 1.001}])
def test_the_comparison_with_theory_notices_a_part_in_a_thousand(settings):
    def perturbed(z, y, *, temperature, head_factor=1.0, reduction):
        losses = supervised_contrastive(z, y, temperature=temperature, reduction="none")
        assert reduction == "sum"
        return (losses * torch.where(y == 0, head_factor, 1.0)).sum()

    value, _ = least_f(4, 5, 3)
    found = minimise(perturbed, one_head(3), 3, starts=1, **settings)
    assert found.gap < 1e-6
    assert found.loss != pytest.approx(value, rel=1e-5)


# Determinism and errors


def test_a_seed_makes_the_result():
    def search(seed):
        return minimise(supervised_contrastive, [4, 2, 2], 3, seed=seed, starts=2, temperature=1.0)

    assert torch.equal(search(0).features, search(0).features)
    assert not torch.equal(search(0).features, search(1).features)
    assert search(0).start_losses == search(0).start_losses


def test_the_result_has_the_shapes_it_says():
    found = minimise("balanced_contrastive", np.array([4, 2, 3]), 5, prototypes=True, starts=3, temperature=1.0)
    assert found.features.shape == (9, 5)
    assert found.features.dtype == torch.float64
    assert not found.features.requires_grad
    assert found.labels.tolist() == [0] * 4 + [1] * 2 + [2] * 3
    assert found.class_means.shape == found.prototypes.shape == (3, 5)
    assert (found.weight, found.bias) == (None, None)
    assert len(found.start_losses) == 3
    assert found.loss == min(found.start_losses)
    loss = balanced_contrastive(found.features, found.labels, found.prototypes, temperature=1.0, reduction="sum")
    assert found.loss == pytest.approx(loss.item(), rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("nonsense", [2, 2], 2), {}, "nonsense"),
        ((lambda z: z.sum(), [2, 2], 2), {}, "must take z, features or logits"),
        (("supervised_contrastive", [2], 2), {}, "class_counts"),
        (("supervised_contrastive", [2, 0], 2), {}, "class_counts"),
        (("supervised_contrastive", [2, 2.5], 2), {}, "class_counts"),
        (("supervised_contrastive", [2, 2], 0), {}, "dim must be at least 1"),
        (("supervised_contrastive", [2, 2], 2), {"starts": 0}, "starts must be at least 1"),
        (("supervised_contrastive", [2, 2], 2), {"prototypes": True}, "prototypes=True"),
        (("supervised_contrastive", [2, 2], 2), {"radius": 2.0}, "losses with a classifier"),
        (("supervised_contrastive", [2, 2], 2), {"classifier": torch.eye(2)}, "losses with a classifier"),
        (("supervised_contrastive", [2, 2], 2), {"reduction": "mean"}, "reduction is the sum"),
        (("bce_joint", [2, 2], 2), {"radius": 0.0}, "radius"),
        (("bce_joint", [2, 2], 2), {"features": "cube"}, "'cube'"),
        (("bce_joint", [2, 2], 2), {"classifier": "cube"}, "'cube'"),
        ((softmax_loss, [2, 2], 2), {"classifier": torch.eye(3)}, r"shape \(2, 2\)"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, settings, message):
    with pytest.raises(ValueError, match=message):
        minimise(*arguments, **settings)
