import pytest
import torch
from random_images import assert_independent, noise, seeded
from scipy import stats
from torchvision.transforms import v2

from ltnb.data.mixing import cutmix, mixed_labels, mixup, outside, random_boxes

SHAPES = [(5, 1, 16, 16), (5, 3, 12, 20)]


@pytest.mark.parametrize("shape", SHAPES)
def test_mixup_is_torchvisions_with_one_share(shape):
    batch, y = noise(shape), torch.tensor([0, 3, 3, 1, 2])
    theirs = v2.MixUp(num_classes=4)
    params = {"labels": y, "batch_size": len(batch), "lam": 0.3}
    share = torch.full((5,), 0.3)
    torch.testing.assert_close(mixup(batch, batch.roll(1, 0), share), theirs.transform(batch, params))
    torch.testing.assert_close(mixed_labels(y, y.roll(1, 0), share, 4), theirs.transform(y, params))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("box", [(2, 1, 9, 4), (0, 0, 5, 12), (7, 3, 7, 3)])
def test_cutmix_is_torchvisions_with_one_box(shape, box):
    batch, y = noise(shape), torch.tensor([0, 3, 3, 1, 2])
    height, width = shape[-2:]
    boxes = torch.tensor(box).expand(5, 4)
    share = outside(boxes, height, width)
    theirs = v2.CutMix(num_classes=4)
    params = {"labels": y, "batch_size": 5, "box": box, "lam_adjusted": share[0].item()}
    assert torch.equal(cutmix(batch, batch.roll(1, 0), boxes), theirs.transform(batch, params))
    torch.testing.assert_close(mixed_labels(y, y.roll(1, 0), share, 4), theirs.transform(y, params))


def test_every_image_has_a_share_and_a_box_of_its_own():
    black, white = torch.zeros(3, 2, 6, 8), torch.ones(3, 2, 6, 8)
    share = torch.tensor([0.0, 0.25, 1.0])
    assert torch.equal(mixup(white, black, share), share.view(3, 1, 1, 1).expand(3, 2, 6, 8))
    boxes = torch.tensor([[0, 0, 8, 6], [2, 1, 5, 3], [4, 4, 4, 6]])
    expected = torch.ones(3, 2, 6, 8)
    for i, (left, top, right, bottom) in enumerate(boxes.tolist()):
        expected[i, :, top:bottom, left:right] = 0
    mixed = cutmix(white, black, boxes)
    assert torch.equal(mixed, expected)
    torch.testing.assert_close(outside(boxes, 6, 8), mixed.mean(dim=(1, 2, 3)))


def test_boxes_are_the_usual_ones_around_their_middle():
    # At λ = 0.75 on 8 × 12 pixels the half sides are 2 and 3: each of the 96 middles clips to a box of its own.
    boxes = random_boxes(torch.full((9600,), 0.75), 8, 12, seeded())
    usual = {(max(x - 3, 0), max(y - 2, 0), min(x + 3, 12), min(y + 2, 8)) for x in range(12) for y in range(8)}
    drawn, counts = boxes.unique(dim=0, return_counts=True)
    assert {tuple(box) for box in drawn.tolist()} == usual
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    assert_independent(boxes[:, :2].double())


def test_the_share_decides_the_size():
    share = torch.tensor([0.0, 0.2, 0.5, 0.9, 0.999, 1.0])
    for seed in range(50):
        boxes = random_boxes(share, 32, 32, seeded(seed))
        for kept, (left, top, right, bottom) in zip(share.tolist(), boxes.tolist(), strict=True):
            half = int(0.5 * (1 - kept) ** 0.5 * 32)
            assert 0 <= left <= right <= min(32, left + 2 * half)
            assert 0 <= top <= bottom <= min(32, top + 2 * half)
            assert right - left >= half
            assert bottom - top >= half
        assert (outside(boxes, 32, 32) >= share - 1e-6).all()
        assert outside(boxes, 32, 32)[-1] == 1


def test_the_same_class_twice_is_that_class():
    y = torch.tensor([2, 0])
    assert torch.equal(mixed_labels(y, y, torch.tensor([0.3, 1.0]), 3), torch.eye(3)[y])
    single = mixed_labels(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.rand(1), 1)
    torch.testing.assert_close(single, torch.ones(1, 1))
