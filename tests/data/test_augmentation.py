import pytest
import torch
from random_images import noise, noise_bytes, seeded

from ltnb.data import augmentation
from ltnb.data.augmentation import VIEWS, augment, normalise
from ltnb.data.auto_augment import auto_augment
from ltnb.data.blurring import random_blur
from ltnb.data.cropping import random_crop, random_resized_crop
from ltnb.data.cutout import random_cutout
from ltnb.data.draws import ShareOfDraws
from ltnb.data.flipping import random_flip
from ltnb.data.jitter import colour_jitter, random_grey
from ltnb.data.rand_augment import rand_augment, strong_rand_augment
from ltnb.data.warping import random_affine

RANDOM = [name for name in VIEWS if name != "none"]


@pytest.mark.parametrize("policy", RANDOM)
@pytest.mark.parametrize("channels", [1, 3])
def test_one_image_many_times_in_a_batch_gives_different_views(policy, channels):
    one = noise_bytes((1, channels, 16, 16))
    views = augment(one.expand(256, -1, -1, -1), policy, seeded())
    # The 25 shifts of the crop, mirrored or not. 256 places of a box, half of them of an image that has its colours,
    # may coincide; with anything else, no two views are alike.
    distinct = len(views.unique(dim=0))
    assert distinct >= 250 if policy == "auto" else distinct == {"weak": 25, "crop-flip": 50}.get(policy, 256)


@pytest.mark.parametrize("policy", VIEWS)
def test_an_image_does_not_influence_the_others(policy):
    batch = noise_bytes((24, 3, 16, 16))
    changed = batch.clone()
    changed[0] = 0
    before, after = augment(batch, policy, seeded()), augment(changed, policy, seeded())
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("policy", RANDOM)
def test_the_generator_alone_decides(policy):
    batch = noise_bytes((8, 1, 16, 16))
    generator = seeded(4)
    torch.manual_seed(0)
    first = augment(batch, policy, generator)
    second = augment(batch, policy, generator)
    torch.manual_seed(1)
    assert torch.equal(first, augment(batch, policy, seeded(4)))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("policy", VIEWS)
@pytest.mark.parametrize("shape", [(64, 1, 16, 16), (64, 3, 32, 32), (64, 3, 12, 20), (1, 1, 8, 8)])
@pytest.mark.parametrize("images", [noise_bytes, lambda shape: torch.full(shape, 255, dtype=torch.uint8)])
def test_views_are_float32_from_zero_to_one(policy, shape, images):
    view = augment(images(shape), policy, seeded())
    assert view.dtype == torch.float32
    assert view.shape == shape
    assert ((view >= 0) & (view <= 1)).all()


def test_none_is_the_image_itself_and_draws_nothing():
    batch = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    generator = seeded()
    state = generator.get_state()
    assert torch.equal(augment(batch, "none", generator), batch / 255)
    assert torch.equal(generator.get_state(), state)


def test_strong_is_an_affine_map_and_then_a_crop():
    batch, generator = noise_bytes((8, 3, 16, 16)), seeded(5)
    moved = random_affine(batch / 255, generator, degrees=15, translate=1 / 16, scale=(0.8, 1.2))
    assert torch.equal(random_crop(moved, generator, padding=2), augment(batch, "strong", seeded(5)))


def test_black_background_stays_black():
    # A digit well inside its frame: whatever enters at the border must not differ from what was there.
    batch = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    batch[:, :, 6:10, 6:10] = 255
    border = augment(batch, "strong", seeded())
    border[:, :, 2:-2, 2:-2] = 0
    assert border.count_nonzero() == 0


def test_sim_treats_grey_as_a_colour_photograph_of_it():
    # Luminance weights add up to 0.9999.
    batch = noise_bytes((64, 1, 16, 16))
    grey, colour = augment(batch, "sim", seeded()), augment(batch.expand(-1, 3, -1, -1), "sim", seeded())
    torch.testing.assert_close(colour, grey.expand(-1, 3, -1, -1), atol=5e-4, rtol=0)


def test_rand_is_sim_and_one_more_operation(monkeypatch):
    batch = noise_bytes((64, 3, 16, 16))
    seen = []
    monkeypatch.setattr(augmentation, "rand_augment", lambda images, _generator: seen.append(images))
    augment(batch, "rand", seeded())
    assert torch.equal(seen[0], augment(batch, "sim", seeded()))


def test_views_of_photographs_are_what_the_papers_name():
    batch, generator = noise_bytes((40, 3, 32, 32)), seeded(5)
    moved = random_flip(random_crop(batch / 255, generator, padding=4), generator)
    assert torch.equal(moved, augment(batch, "crop-flip", seeded(5)))
    expected = random_cutout(auto_augment(moved, generator), generator, side=0.5)
    assert torch.equal(expected, augment(batch, "auto", seeded(5)))

    generator = seeded(6)
    window = random_resized_crop(batch / 255, generator, area=(0.2, 1), distortion=4 / 3)
    changed = colour_jitter(
        random_flip(window, generator),
        generator,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        probability=0.8,
    )
    plain = random_grey(changed, generator, probability=0.2)
    assert torch.equal(plain, augment(batch, "sim-flip", seeded(6)))
    state = generator.get_state()
    blurred = random_blur(plain, generator, sigma=(0.1, 2), probability=0.5)
    assert torch.equal(blurred, augment(batch, "sim-blur", seeded(6)))
    generator.set_state(state)
    assert torch.equal(rand_augment(plain, generator), augment(batch, "rand-flip", seeded(6)))


def test_views_of_larger_photographs_are_what_the_papers_name():
    batch, size = noise_bytes((40, 3, 40, 40)), (32, 32)
    usual = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}

    def zoomed(generator):
        window = random_resized_crop(batch / 255, generator, area=(0.08, 1), distortion=4 / 3, size=size)
        return random_flip(window, generator)

    def jittered(generator, hue):
        return colour_jitter(zoomed(generator), generator, **usual, hue=hue, probability=1)

    def sim(generator):
        changed = colour_jitter(zoomed(generator), generator, **usual, hue=0.1, probability=0.8)
        return random_grey(changed, generator, probability=0.2)

    def cropped(generator):
        return random_flip(random_crop(batch / 255, generator, padding=0, size=size), generator)

    expected = {
        "crop-flip": cropped,
        "crop-flip-turn": lambda g: random_affine(cropped(g), g, degrees=20, translate=0, scale=(1, 1)),
        "zoom-flip": zoomed,
        "zoom-jitter": lambda g: jittered(g, 0),
        "zoom-hue": lambda g: jittered(g, 0.2),
        "zoom-rand": lambda g: strong_rand_augment(jittered(g, 0), g),
        "zoom-sim": sim,
        "zoom-sim-rand": lambda g: strong_rand_augment(sim(g), g),
    }
    for policy, view in expected.items():
        assert torch.equal(augment(batch, policy, seeded(5), size=32), view(seeded(5)))
    assert {policy for policy in VIEWS if policy.startswith("zoom-")} < set(expected)


def test_crops_of_cifar_keep_their_frame_and_turn():
    batch, generator = noise_bytes((40, 3, 32, 32)), seeded(7)
    moved = random_flip(random_crop(batch / 255, generator, padding=4), generator)
    turned = random_affine(moved, generator, degrees=20, translate=0, scale=(1, 1))
    assert torch.equal(turned, augment(batch, "crop-flip-turn", seeded(7)))
    assert torch.equal(turned, augment(batch, "crop-flip-turn", seeded(7), size=32))


@pytest.mark.parametrize("policy", VIEWS)
@pytest.mark.parametrize("first", [None, 3])
def test_a_large_batch_is_changed_in_parts_and_gives_the_same_views(monkeypatch, policy, first):
    batch, whole, parts = noise_bytes((20, 3, 32, 32)), seeded(4), seeded(4)

    def views(generator):
        share = generator if first is None else ShareOfDraws(generator, 25, first)
        return [augment(batch, policy, share, size=24) for _ in range(2)]

    expected = views(whole)
    sizes = []
    view = VIEWS[policy]
    monkeypatch.setitem(VIEWS, policy, lambda images, *rest: sizes.append(len(images)) or view(images, *rest))
    monkeypatch.setattr(augmentation, "PART", 7 * batch[0].numel())
    for ours, theirs in zip(views(parts), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert sizes == [7, 7, 6] * 2
    assert torch.equal(whole.get_state(), parts.get_state())


def test_the_middle_is_shown_without_augmentation():
    batch = noise_bytes((4, 3, 40, 40))
    assert torch.equal(augment(batch, "none", seeded(), size=32), batch[..., 4:-4, 4:-4] / 255)


def test_normalise_by_channel():
    batch = noise((50, 3, 8, 8), torch.float64) * torch.tensor([0.2, 0.5, 1.0]).view(3, 1, 1)
    mean, std = batch.mean(dim=(0, 2, 3)), batch.std(dim=(0, 2, 3), correction=0)
    normal = normalise(batch, mean, std)
    torch.testing.assert_close(normal.mean(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(normal.std(dim=(0, 2, 3), correction=0), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(normalise(batch, mean.tolist(), std.tolist()), normal)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, g: augment(x, "stronk", g), "policy = 'stronk': expected one of none, weak, strong, sim, rand"),
        (lambda x, g: augment(x / 255, "weak", g), "images are torch.float32: expected torch.uint8"),
        (lambda x, g: augment(x[0], "weak", g), r"shape \(1, 16, 16\): expected \(N, C, H, W\)"),
        (lambda x, g: augment(x[:0], "none", g), "0 images: expected N ≥ 1"),
        (lambda x, g: augment(x.expand(-1, 2, -1, -1), "sim", g), "2 channels"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(2, 1, 16, 16, dtype=torch.uint8), seeded())
