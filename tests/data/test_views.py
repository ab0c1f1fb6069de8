import contextlib
from typing import get_args

import pytest
import torch
from random_images import noise_bytes, seeded
from scipy import stats
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ltnb.data import views
from ltnb.data.augmentation import VIEWS, augment, normalise
from ltnb.data.draws import ShareOfDraws
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

    def plain(images, policy, _generator, _size):
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
    [
        ("mixup", "strong"),
        ("cutmix", "strong"),
        ("mixup-flip", "crop-flip"),
        ("cutmix-flip", "crop-flip"),
        ("mixup-zoom", "zoom-jitter"),
        ("cutmix-zoom", "zoom-jitter"),
    ],
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
    digits = draw(batch, y, how, seeded(), num_classes=20)
    for photographs in (f"{how}-flip", f"{how}-zoom"):
        for one, other in zip(digits, draw(batch, y, photographs, seeded(), num_classes=20), strict=True):
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


POLICIES = [*VIEWS, *MIXED_VIEWS]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("sizes", "size"),
    [([20], None), ([10, 10], None), ([7, 7, 6], None), ([1, 15, 4], 24), ([0, 20], 24), ([13, 7, 0], None)],
)
def test_shares_of_a_batch_are_drawn_as_the_whole_is(policy, sizes, size):
    batch, y, whole = noise_bytes((20, 3, 32, 32)), torch.arange(20) % 7, seeded(3)
    expected = [draw(batch, y, policy, whole, num_classes=7, size=size) for _ in range(2)]

    drawn = []
    for place, number in enumerate(sizes):
        first = sum(sizes[:place])
        rows, share = slice(first, first + number), ShareOfDraws(seeded(3), 20, first)
        drawn.append(
            [draw(batch[rows], y[rows], policy, share, num_classes=7, size=size, partners=(batch, y)) for _ in range(2)]
        )
        assert torch.equal(share.generator.get_state(), whole.get_state())
    for epoch, (views_, targets) in enumerate(expected):
        parts = [share[epoch] for share in drawn]
        # A sum over few images may take its terms in another order than one over many: the last bits differ.
        torch.testing.assert_close(torch.cat([view for view, _ in parts]), views_, atol=1e-6, rtol=0)
        assert torch.equal(torch.cat([target for _, target in parts]), targets)


@pytest.mark.parametrize("policy", POLICIES)
def test_views_have_the_size_that_is_asked_for(policy):
    batch, y = noise_bytes((6, 3, 40, 40)), torch.arange(6)
    view, _ = draw(batch, y, policy, seeded(), num_classes=6, size=32)
    assert view.shape == (6, 3, 32, 32)
    assert ((view >= 0) & (view <= 1)).all()
    own, same = (draw(batch, y, policy, seeded(), num_classes=6, size=size)[0] for size in (None, 40))
    assert torch.equal(own, same)


class Copies(TorchFunctionMode):
    """What makes a tensor of a list of numbers: no operation is dispatched as it is copied to the device."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function, _types, arguments=(), keywords=None):
        if function in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor):
            self.seen.append(f"copy by {function.__name__}")
        return function(*arguments, **(keywords or {}))


class Waits(TorchDispatchMode):
    """What makes the host wait for the device, or copies a tensor of the host to it.

    Images lie on "meta", so that a tensor on the CPU is one of the host's.
    """

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, function, _types, arguments=(), keywords=None):
        name = function.overloadpacket._qualified_op_name
        tensors = [x for x in torch.utils._pytree.tree_leaves((arguments, keywords)) if isinstance(x, torch.Tensor)]
        device = torch.device("meta")
        to_device = (keywords or {}).get("device") == device or any(x.device == device for x in tensors)
        if (
            name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select")
            or (name.startswith("aten::index") and any(x.dtype == torch.bool for x in tensors))
            or (to_device and any(x.device != device and x.numel() > 0 for x in tensors))
        ):
            self.seen.append(name)
        return function(*arguments, **(keywords or {}))


def waits(call):
    seen = []
    with Copies(seen), Waits(seen):
        call()
    return seen


@pytest.mark.parametrize("policy", POLICIES)
def test_an_accelerator_is_not_waited_for(policy):
    batch, y = noise_bytes((8, 3, 40, 40)).to("meta"), torch.zeros(8, dtype=torch.int64, device="meta")
    share = ShareOfDraws(seeded(), 16, 8)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)

    def view():
        normalise(draw(batch, y, policy, seeded(), num_classes=4, size=32)[0], mean, std)
        partners = (batch.repeat(2, 1, 1, 1), y.repeat(2))
        normalise(draw(batch, y, policy, share, num_classes=4, partners=partners)[0], mean, std)

    view()  # what is kept for each device is copied once
    assert waits(view) == []


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        (lambda x: x.new_tensor([1.0, 2.0]), "copy"),
        (lambda x: x + torch.tensor([1.0, 2.0]).to(x.device), "copy"),
        (lambda x: x[torch.tensor([True, False])], "index"),
        (lambda x: x[x > 0], "index"),
        (lambda x: (x > 0).nonzero(), "nonzero"),
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: 1 if x.sum() > 0 else 0, "_local_scalar_dense"),
        (lambda x: x.masked_select(x > 0), "masked_select"),
    ],
)
def test_a_wait_would_be_seen(call, operation):
    def asked():
        with contextlib.suppress(RuntimeError, NotImplementedError):  # there is no value to be read
            call(torch.zeros(2, device="meta"))

    assert any(operation in name for name in waits(asked))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, y, g: draw(x, y, "mix", g, num_classes=4), "policy = 'mix': expected one of none, .*cutmix"),
        (lambda x, y, g: draw(x / 255, y, "mixup", g, num_classes=4), "images are torch.float32"),
        (lambda x, y, g: draw(x[:0], y[:0], "mixup", g, num_classes=4), "N ≥ 1"),
        (lambda x, y, g: draw(x, y, "weak", g, num_classes=4, size=9), "size = 9: expected views inside .* 8 × 8"),
        (lambda x, y, g: draw(x[..., :6], y, "weak", g, num_classes=4, size=5), "size = 5: .* squares, .* 8 × 6"),
        (lambda x, y, g: draw(x, y, "none", g, num_classes=4, size=0), "size = 0"),
        (
            lambda x, y, g: draw(x, y, "mixup", ShareOfDraws(g, 8, 4), num_classes=4),
            "4 partners with 4 labels: expected the whole batch, 8",
        ),
        (
            lambda x, y, g: draw(x, y, "mixup", g, num_classes=4, partners=(x, y[:2])),
            "4 partners with 2 labels: expected the whole batch, 4",
        ),
        (lambda x, y, g: draw(x, y, "none", ShareOfDraws(g, 5, 2), num_classes=4), "4 images from place 2"),
        (lambda x, y, g: draw(x, y[:3], "weak", g, num_classes=4), r"labels have shape \(3,\): expected .* 4 images"),
        (lambda x, y, g: draw(x, y, "cutmix", g, num_classes=3), r"labels hold 3: expected class indices in \[0, 3\)"),
        (lambda x, y, g: draw(x, y - 1, "mixup", g, num_classes=4), "labels hold -1"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.arange(4), seeded())
