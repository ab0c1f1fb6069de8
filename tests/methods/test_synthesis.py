"""Synthetic features: how many, of which classes, drawn from what, and when that is learnt again."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb.methods import FeatRecon, SupervisedContrastive
from ltnb.methods.contrast import PairedContrast
from ltnb.methods.synthesis import SupportSynthesis, UpSampling, lacking

COUNTS = [14, 6, 3, 1]
K, P = 4, 3
UNUSED = nn.Linear(5, K)  # the classifier, of which these contrasts make nothing


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def epoch_of_features(seed: int = 0, spread: float = 0.3) -> tuple[Tensor, Tensor]:
    """As many unit rows of each class as it has training images; classes 2 and 3 lie near 0 and 1, their heads."""
    y = torch.repeat_interleave(torch.arange(K), torch.tensor(COUNTS))
    centres = torch.tensor([[1, 0, 0], [0, 1, 0], [0.7, 0.1, 0.7], [0.2, 0.8, -0.6]], dtype=torch.float64)
    noise = torch.randn(len(y), P, generator=seeded(seed), dtype=torch.float64)
    return F.normalize(centres[y] + spread * noise, dim=1), y


def support_synthesis(**changes: Any) -> SupportSynthesis:
    defaults = {"synthesis_start": 0.0, "projection_dim": P}
    if changes.get("head_mix") != 1:
        defaults |= {"head_above": 5, "nearest_heads": 1}
    return SupportSynthesis(FeatRecon(**{**defaults, **changes}), COUNTS).double()


def estimated(**changes: Any) -> SupportSynthesis:
    synthesis = support_synthesis(**changes)
    synthesis.collect(*epoch_of_features())
    synthesis.after_epoch(1, 10)
    return synthesis


def test_what_classes_lack() -> None:
    assert lacking(torch.tensor([2, 0, 2, 2, 0]), 4).tolist() == [1, 3, 0, 3]
    assert lacking(torch.tensor([1]), 3).tolist() == [1, 0, 1]


def test_up_sampling_repeats_what_the_batch_has() -> None:
    y = torch.tensor([2, 0, 2, 2, 0, 3])  # class 1 is absent
    z = F.normalize(torch.randn(6, P, generator=seeded(), dtype=torch.float64), dim=1).requires_grad_()
    rows, classes = UpSampling(K)(z, y, seeded())
    assert classes.tolist() == [0, 3, 3]
    assert torch.cat([y, classes]).bincount(minlength=K).tolist() == [3, 0, 3, 3]
    for row, k in zip(rows, classes, strict=True):
        assert any(torch.equal(row, z[i]) for i in range(6) if y[i] == k)
    torch.testing.assert_close(rows[1], z[5])
    rows.sum().backward()  # repeated rows pass the gradient on to the image that they repeat
    assert z.grad is not None
    assert z.grad[5].tolist() == [2.0] * P
    assert z.grad[[0, 2, 3]].abs().sum() == 0


def test_up_sampling_needs_nothing_in_a_batch_of_equal_classes() -> None:
    z = torch.eye(3, dtype=torch.float64)
    rows, classes = UpSampling(K)(z, torch.tensor([0, 1, 3]), seeded())
    assert (len(rows), len(classes)) == (0, 0)


def test_up_sampling_draws_uniformly_with_replacement() -> None:
    y = torch.tensor([1, 0, 1, 1, *[2] * 9003])  # 9000 draws of three images, 9002 of one
    z = torch.zeros(len(y), P, dtype=torch.float64)
    z[:, 0] = torch.arange(len(y))  # told apart by their number, not as points of a sphere
    rows, classes = UpSampling(K)(z, y, seeded(3))
    assert classes.bincount().tolist() == [9002, 9000]
    counts = rows[classes == 1, 0].long().bincount(minlength=4)
    assert counts[1] == 0
    deviation = (9000 * (1 / 3) * (2 / 3)) ** 0.5
    assert all(abs(int(counts[i]) - 3000) < 4 * deviation for i in (0, 2, 3))
    drawn = rows[classes == 1, 0]
    repeats = int((drawn[1:] == drawn[:-1]).sum())  # independent: a third of the draws repeats the one before
    assert abs(repeats - 3000) < 4 * deviation


def support_by_hand(z: Tensor, quantile: float) -> tuple[list[float], float, float, float]:
    """Centre, radius, and mean and standard deviation of the angles, of one class."""
    total = [sum(column) for column in zip(*z.tolist(), strict=True)]
    length = math.hypot(*total)
    centre = [value / length for value in total]
    angles = sorted(math.acos(min(1, sum(a * b for a, b in zip(row, centre, strict=True)))) for row in z.tolist())
    position = quantile * (len(angles) - 1)
    below = math.floor(position)
    above = min(below + 1, len(angles) - 1)
    radius = angles[below] + (position - below) * (angles[above] - angles[below])
    mean = sum(angles) / len(angles)
    return centre, radius, mean, (sum((angle - mean) ** 2 for angle in angles) / len(angles)) ** 0.5


@pytest.mark.parametrize("quantile", [0.99, 0.6])
def test_supports_of_real_features_by_hand(quantile: float) -> None:
    synthesis = estimated(head_mix=1.0, support_cap=False, support_quantile=quantile)
    assert len(synthesis.heads) == 0  # and none is needed
    z, y = epoch_of_features()
    for k in range(K):
        centre, *numbers = support_by_hand(z[y == k], quantile)
        assert synthesis.centres[k].tolist() == pytest.approx(centre)
        found = [float(part[k]) for part in (synthesis.radii, synthesis.angle_means, synthesis.angle_stds)]
        assert found == pytest.approx(numbers, abs=1e-7)


def test_rectified_and_capped_by_hand() -> None:
    mix, spread = 0.3, 0.5  # so wide that some supports reach the cap
    synthesis = support_synthesis(head_mix=mix)
    z, y = epoch_of_features(spread=spread)
    synthesis.collect(z, y)
    synthesis.after_epoch(1, 10)
    own = [support_by_hand(z[y == k], 0.99) for k in range(K)]
    cap = math.acos(-1 / 3) / 2
    radii = []
    for k in range(K):
        centre, radius, *_ = own[k]
        if k >= 2:  # classes 0 and 1, of 14 and 6 images, are the heads and stay as they are
            similarities = [sum(a * b for a, b in zip(centre, own[head][0], strict=True)) for head in (0, 1)]
            nearest = own[similarities.index(max(similarities))]
            assert max(similarities) > 0
            mixed = [(1 - mix) * a + mix * b for a, b in zip(nearest[0], centre, strict=True)]
            centre = [value / math.hypot(*mixed) for value in mixed]
            radius = (1 - mix) * nearest[1] + mix * radius
        assert synthesis.centres[k].tolist() == pytest.approx(centre)
        assert float(synthesis.radii[k]) == pytest.approx(min(radius, cap))
        radii.append(radius)
    assert max(radii) > cap > min(radii)


@pytest.mark.parametrize(
    ("first", "refresh", "learnt_after"), [(2, 1, [1, 2, 3, 4, 5, 6, 7, 8, 9]), (4, 2, [3, 5, 7, 9]), (5, 10, [4])]
)
def test_when_supports_are_learnt(first: int, refresh: int, learnt_after: list[int]) -> None:
    synthesis = support_synthesis(synthesis_start=(first - 1) / 10, support_refresh=refresh)
    z, y = epoch_of_features()
    learnt = []
    for epoch in range(1, 11):  # after the last one nothing is learnt: nothing would be drawn from it
        drawn, _ = synthesis(z, y, seeded())
        assert (len(drawn) > 0) == (epoch >= first)
        before = synthesis.centres.clone()
        features, labels = epoch_of_features(seed=epoch)
        half = torch.arange(len(labels)) % 2 == 0
        synthesis.collect(features[half], labels[half])  # an epoch comes in batches
        synthesis.collect(features[~half], labels[~half])
        synthesis.after_epoch(epoch, 10)
        if not torch.equal(synthesis.centres, before):
            learnt.append(epoch)
            heads = torch.stack([F.normalize(features[labels == k].sum(dim=0), dim=0) for k in (0, 1)])
            torch.testing.assert_close(synthesis.centres[:2], heads)  # of this epoch's features and no others
        assert synthesis.epoch == []
    assert learnt == learnt_after


def test_supports_come_from_the_real_features_of_one_view() -> None:
    torch.manual_seed(0)
    settings = FeatRecon(synthesis_start=0.0, head_above=5, nearest_heads=1, projection_dim=P)
    module = PairedContrast(settings, 5, COUNTS).double()
    y = torch.tensor([0, 1, 2, 3, 0, 0])
    views = [torch.randn(6, 5, generator=seeded(v), dtype=torch.float64) for v in range(3)]
    for epoch in (1, 2):  # in the second, synthetic features are there and must not be collected
        module([], views, [y] * 3, UNUSED, seeded())
        projections = module.projector(torch.cat(views[1:]))
        assert isinstance(module.synthesis, SupportSynthesis)
        ((collected, labels),) = module.synthesis.epoch
        torch.testing.assert_close(collected, projections[:6])
        assert not collected.requires_grad
        assert labels.tolist() == y.tolist()
        module.after_epoch(epoch, 10)


@pytest.mark.parametrize("law", ["uniform", "truncated-normal"])
def test_every_class_is_filled_up_to_the_batchs_largest_or_by_a_fixed_number(law: Any) -> None:
    y = torch.tensor([0, 0, 0, 1, 3])  # class 2 is absent and filled up as well
    z = epoch_of_features()[0][:5]
    rows, classes = estimated(support_law=law)(z, y, seeded())
    assert torch.cat([y, classes]).bincount().tolist() == [3, 3, 3, 3]
    rows, classes = estimated(support_law=law, synthetic_features=2)(z, y, seeded())
    assert classes.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(8, dtype=torch.float64))


@pytest.mark.parametrize("law", ["uniform", "truncated-normal"])
def test_features_lie_in_their_supports_carry_no_gradient_and_follow_the_law(law: Any) -> None:
    number = 4000
    synthesis = estimated(support_law=law, synthetic_features=number)
    z, y = epoch_of_features()
    rows, classes = synthesis(z.requires_grad_(), y, seeded(1))
    assert not rows.requires_grad
    angles = (rows * synthesis.centres[classes]).sum(dim=1).clamp(-1, 1).arccos()
    assert (angles <= synthesis.radii[classes] + 1e-7).all()
    for k in range(K):
        found, radius = angles[classes == k], float(synthesis.radii[k])
        if law == "uniform":  # in three dimensions 1 − cos is uniform
            share = (1 - found.cos()) / (1 - math.cos(radius))
            assert abs(float(share.mean()) - 0.5) < 4 * (1 / 12 / number) ** 0.5
        else:  # against draws of the normal law, those outside the cap thrown away
            mean, std = float(synthesis.angle_means[k]), float(synthesis.angle_stds[k])
            normal = mean + std * torch.randn(20 * number, generator=seeded(2), dtype=torch.float64)
            kept = normal[(normal >= 0) & (normal <= radius)]
            error = (found.var() / number + kept.var() / len(kept)).sqrt()
            assert abs(float(found.mean() - kept.mean())) < 4 * float(error)


def test_a_class_of_one_image_is_a_point_without_its_heads_and_a_cap_with_them() -> None:
    z, y = epoch_of_features()
    alone, _ = estimated(head_mix=1.0, synthetic_features=50)(z, y, seeded())
    torch.testing.assert_close(alone[150:], z[-1].expand(50, P))
    mixed, _ = estimated(head_mix=0.5, synthetic_features=50)(z, y, seeded())
    assert (mixed[150:] @ F.normalize(mixed[150:].sum(dim=0), dim=0)).min() < 0.999


@pytest.mark.parametrize("absent", [0, 2])
@pytest.mark.parametrize("amount", ["equalise", 3])
def test_a_class_without_images_gets_no_features_and_changes_no_others_support(absent: int, amount: Any) -> None:
    z, y = epoch_of_features()
    synthesis = support_synthesis(synthetic_features=amount, head_above=1)
    synthesis.collect(z[y != absent], y[y != absent])
    synthesis.after_epoch(1, 10)
    rows, classes = synthesis(z[:4], torch.tensor([1, 1, 3, 1]), seeded())
    assert rows.isfinite().all()
    wanted = {1: 0, 3: 2} if amount == "equalise" else {1: 3, 3: 3}
    wanted[2 - absent] = 3
    assert classes.bincount(minlength=K).tolist() == [wanted.get(k, 0) for k in range(K)]
    for k in set(range(K)) - {absent}:  # by its own images and the heads that have some
        assert synthesis.centres[k].norm() == pytest.approx(1)
    if absent == 2:  # no head: the others are as they would be beside it
        whole = estimated(head_above=1)
        for name in ("centres", "radii", "angle_means", "angle_stds"):
            kept = [0, 1, 3]
            torch.testing.assert_close(getattr(synthesis, name)[kept], getattr(whole, name)[kept])


def test_what_is_drawn_is_the_methods_generators() -> None:
    synthesis, (z, y) = estimated(), epoch_of_features()
    first, again, other = (synthesis(z, y, seeded(seed))[0] for seed in (1, 1, 2))
    torch.testing.assert_close(first, again)
    assert not torch.allclose(first, other)


def test_projections_in_reduced_precision() -> None:
    synthesis = support_synthesis().float()
    z, y = epoch_of_features()
    synthesis.collect(z.bfloat16(), y)
    synthesis.after_epoch(1, 10)
    rows, _ = synthesis(z.bfloat16(), y, seeded())
    assert rows.dtype == torch.bfloat16
    assert synthesis.centres.dtype == torch.float32


def test_up_sampling_in_the_contrast_is_the_contrast_of_repeated_rows() -> None:
    """Repeated rows are anchors of their own: n copies of a batch's row weigh n times."""
    torch.manual_seed(0)
    module = PairedContrast(FeatRecon(synthesis="up-sampling", head_temperature=None), 5, COUNTS).double()
    plain = PairedContrast(SupervisedContrastive(), 5, COUNTS).double()
    plain.projector = module.projector
    y = torch.tensor([0, 0, 1])
    views = [torch.randn(3, 5, generator=seeded(v), dtype=torch.float64) for v in range(2)]
    # Batch normalisation would see the repeated image twice: fixed statistics.
    module.projector.eval()
    found = module([], views, [y] * 2, UNUSED, seeded())["contrast"]
    repeated = [view[[0, 1, 2, 2]] for view in views]
    expected = plain([], repeated, [torch.tensor([0, 0, 1, 1])] * 2, UNUSED, seeded())["contrast"]
    torch.testing.assert_close(found, expected)
