from collections import Counter

import pytest
import torch
from random_images import noise_bytes, seeded
from scipy import stats
from torchvision.transforms import AutoAugment, AutoAugmentPolicy

from ltnb.data import auto_augment as module
from ltnb.data.auto_augment import CIFAR10, MOVE, OPERATIONS, auto_augment

PLACES = {name: place for place, name in enumerate(OPERATIONS)}
NAMES = {"Color": "saturation", "Posterize": "posterise", "Equalize": "equalise", "Solarize": "solarise"} | {
    "AutoContrast": "autocontrast",
    "ShearY": "shear y",
    "TranslateX": "translate x",
    "TranslateY": "translate y",
}


def test_the_table_is_torchvisions():
    theirs = AutoAugment(AutoAugmentPolicy.CIFAR10)
    ranges = theirs._augmentation_space(10, (32, 32))
    assert len(CIFAR10) == 25
    for pair, expected in zip(CIFAR10, theirs.policies, strict=True):
        for (name, probability, level), (their_name, their_probability, their_level) in zip(
            pair, expected, strict=True
        ):
            assert name == NAMES.get(their_name, their_name.lower())
            assert probability == their_probability
            assert level == (their_level or 0)
            magnitudes, signed = ranges[their_name]
            change = OPERATIONS[name] * level / 9
            if name.startswith("translate"):
                assert int(change * 32) == int(magnitudes[level])
            elif name == "posterise":
                assert 8 - round(change) == int(magnitudes[level])
            elif name == "solarise":
                assert 255 * (1 - change) == pytest.approx(magnitudes[level].item())
            elif signed:
                assert change == pytest.approx(magnitudes[level].item())
            else:
                assert change == 0


@pytest.fixture
def drawn(monkeypatch):
    """Operation and change of both halves for 30,000 samples of one batch, (N, 2) each."""
    seen = []

    def leave(images, operation, change, names, move):
        assert names == tuple(OPERATIONS)
        assert move is MOVE
        seen.append((operation, change))
        return images

    monkeypatch.setattr(module, "operate", leave)
    auto_augment(torch.zeros(30000, 1, 2, 2), seeded())
    return tuple(torch.stack(halves, dim=1) for halves in zip(*seen, strict=True))


def test_pairs_halves_and_signs_have_the_policys_law(drawn):
    expected = Counter()
    for pair in CIFAR10:
        cases = []
        for name, probability, level in pair:
            change = round(OPERATIONS[name] * level / 9, 4)
            signs = {change, -change}
            cases.append([(PLACES[name], sign, probability / len(signs)) for sign in signs] + [(0, 0, 1 - probability)])
        for first, second in ((a, b) for a in cases[0] for b in cases[1]):
            expected[first[:2], second[:2]] += first[2] * second[2] / 25

    operation, change = drawn
    rows = zip(operation.tolist(), change.tolist(), strict=True)
    counts = Counter(tuple((o, 0 if o == 0 else round(c, 4)) for o, c in zip(*row, strict=True)) for row in rows)
    # Changes rounded to four places tell all of the policy's apart.
    assert set(counts) <= {case for case, share in expected.items() if share > 0}
    cases = [case for case, share in expected.items() if 30000 * share >= 5]
    rest = 30000 - sum(counts[case] for case in cases)
    shares = [expected[case] for case in cases]
    observed, wanted = [counts[case] for case in cases], [30000 * share for share in shares]
    assert len(cases) > 60
    if sum(shares) < 1 - 1e-9:
        observed, wanted = [*observed, rest], [*wanted, 30000 * (1 - sum(shares))]
    assert stats.chisquare(observed, wanted).pvalue > 0.01


def test_the_samples_of_a_batch_are_independent(drawn):
    # The same pair twice running: 25 equally likely ones, told apart as far as both halves are applied.
    operation, change = drawn
    rows = torch.cat([operation.double(), change.abs().double()], dim=1)
    alike = (rows[1:] == rows[:-1]).all(dim=1).double().mean()
    shuffled = rows[torch.randperm(len(rows), generator=seeded(2))]
    expected = (shuffled[1:] == shuffled[:-1]).all(dim=1).double().mean()
    assert alike.item() == pytest.approx(expected.item(), abs=0.01)


def test_grey_is_a_colour_photograph_of_it():
    # Luminance weights add up to 0.9999; equalising and posterising see levels and would see that.
    batch = noise_bytes((64, 1, 32, 32)) / 255
    grey, colour = auto_augment(batch, seeded()), auto_augment(batch.expand(-1, 3, -1, -1), seeded())
    close = (colour - grey).abs().amax(dim=(1, 2, 3)) < 5e-4
    assert close.float().mean() > 0.9


def test_two_channels_are_no_colour():
    with pytest.raises(ValueError, match="2 channels: expected 1"):
        auto_augment(noise_bytes((2, 2, 4, 4)) / 255, seeded())
