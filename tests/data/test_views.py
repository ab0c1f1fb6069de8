from typing import get_args

import pytest
import torch
from random_images import noise_bytes, seeded
from scipy import stats

from ltnb.data import views
from ltnb.data.augmentation import VIEWS, augment
from ltnb.data.views import MIXED_VIEWS, draw
from ltnb.methods import slots
from ltnb.methods.slots import View


def test_settings_know_every_view():
    assert set(get_args(View)) == {*VIEWS, *MIXED_VIEWS}
    assert {policy: of_one for policy, (_, of_one) in MIXED_VIEWS.items()} == slots.MIXED_VIEWS


@pytest.mark.parametrize("policy", VIEWS)
def test_a_view_of_one_image_keeps_its_label(policy):
    batch, y = noise_bytes((8, 3, 16, 16)), torch.arange(8)
    view, target = draw(batch, y, policy, seeded(2), num_classes=8)
    assert torch.equal(view, augment(batch, policy, seeded(2)))
    assert target is y


@pytest.mark.parametrize("policy", MIXED_VIEWS)
@pytest.mark.parametrize("shape", [(40, 1, 16, 16), (40, 3, 12, 20), (1, 1, 8, 8)])
def test_mixed_views_are_images_and_distributions(policy, shape):
    y = torch.arange(shape[0]) % 7
    view, target = draw(noise_bytes(shape), y, policy, seeded(), num_classes=9)
    assert view.dtype == target.dtype == torch.float32
    assert view.shape == shape
    assert ((view >= 0) & (view <= 1)).all()
    assert target.shape == (shape[0], 9)
    assert (target >= 0).all()
    assert ((target > 0).sum(dim=1) <= 2).all()
    torch.testing.assert_close(target.sum(dim=1), torch.ones(shape[0]))
    assert (target[:, 7:] == 0).all()


@pytest.fixture
def unmoved(monkeypatch):
    """Without the strong view an image shows only what it is mixed of."""
    asked = []

    def plain(images, policy, _generator):
        asked.append((images, policy))
        return images / 255

    monkeypatch.setattr(views, "augment", plain)
    return asked


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize("policy", MIXED_VIEWS)
def test_labels_have_the_mass_that_is_seen(policy):
    # Class 1 is white and class 0 is black: the mean of an image is how much of it is of class 1.
    y = torch.arange(500) % 2
    batch = (255 * y).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 10, 14)
    view, target = draw(batch, y, policy, seeded(), num_classes=2)
    torch.testing.assert_close(view.mean(dim=(1, 2, 3)), target[:, 1], atol=1e-5, rtol=0)
    assert ((target[:, 1] > 0.01) & (target[:, 1] < 0.99)).float().mean() > 0.3


@pytest.mark.parametrize(
    ("policy", "of_one"),
    [("mixup", "strong"), ("cutmix", "strong"), ("mixup-flip", "crop-flip"), ("cutmix-flip", "crop-flip")],
)
def test_each_of_the_two_is_a_view_of_its_own(unmoved, policy, of_one):
    batch = noise_bytes((20, 1, 8, 8))
    _, target = draw(batch, torch.arange(20), policy, seeded(), num_classes=20)
    (first, one), (second, two) = unmoved
    assert one == two == of_one
    assert torch.equal(first, batch)
    target[torch.arange(20), torch.arange(20)] = 0
    paired = target.sum(dim=1) > 0
    assert torch.equal(second[paired], batch[target.argmax(dim=1)][paired])


@pytest.mark.usefixtures("unmoved")
@pytest.mark.parametrize("how", ["mixup", "cutmix"])
def test_photographs_are_mixed_as_digits_are(how):
    batch, y = noise_bytes((20, 3, 8, 8)), torch.arange(20)
    digits, photographs = (draw(batch, y, policy, seeded(), num_classes=20) for policy in (how, f"{how}-flip"))
    for one, other in zip(digits, photographs, strict=True):
        assert torch.equal(one, other)


@pytest.fixture
def pairs(unmoved):  # noqa: ARG001
    """Label masses of 2,400 mixed images from 150 batches of 16, every image a class of its own."""
    generator, y = seeded(), torch.arange(16)
    batch = torch.zeros(16, 1, 2, 2, dtype=torch.uint8)
    return torch.stack([draw(batch, y, "mixup", generator, num_classes=16)[1] for _ in range(150)])


def test_share_is_uniform(pairs):
    own = pairs.diagonal(dim1=1, dim2=2).flatten()
    with_another = (own < 1).nonzero()[:, 0]
    assert stats.kstest(own[with_another].double().numpy(), "uniform").pvalue > 0.01


def test_every_image_of_the_batch_is_as_likely_a_partner(pairs):
    others = pairs.clone()
    others.diagonal(dim1=1, dim2=2).zero_()
    itself = others.sum(dim=2) == 0
    partner = torch.where(itself, torch.arange(16), others.argmax(dim=2))
    counts = torch.bincount((torch.arange(16) * 16 + partner).flatten(), minlength=256)
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    # Of 16 independent partners 16 (1 − (15/16)¹⁶) = 10.3 differ, give or take 1.25; a permutation would have all 16.
    distinct = torch.tensor([len(row.unique()) for row in partner], dtype=torch.float64)
    assert distinct.mean().item() == pytest.approx(16 * (1 - (15 / 16) ** 16), abs=4 * 1.25 / 150**0.5)


@pytest.mark.parametrize("policy", MIXED_VIEWS)
def test_the_generator_alone_decides(policy):
    batch, y = noise_bytes((8, 1, 16, 16)), torch.arange(8)
    torch.manual_seed(0)
    generator = seeded(4)
    first = draw(batch, y, policy, generator, num_classes=8)
    second = draw(batch, y, policy, generator, num_classes=8)
    torch.manual_seed(1)
    again = draw(batch, y, policy, seeded(4), num_classes=8)
    for a, b, other in zip(first, again, second, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, other)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, y, g: draw(x, y, "mix", g, num_classes=4), "policy = 'mix': expected one of none, .*cutmix"),
        (lambda x, y, g: draw(x / 255, y, "mixup", g, num_classes=4), "images are torch.float32"),
        (lambda x, y, g: draw(x[:0], y[:0], "mixup", g, num_classes=4), "N ≥ 1"),
        (lambda x, y, g: draw(x, y[:3], "weak", g, num_classes=4), r"labels have shape \(3,\): expected .* 4 images"),
        (lambda x, y, g: draw(x, y, "cutmix", g, num_classes=3), r"labels hold 3: expected class indices in \[0, 3\)"),
        (lambda x, y, g: draw(x, y - 1, "mixup", g, num_classes=4), "labels hold -1"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4), seeded())
