import pytest
import torch
from random_images import seeded

from ltnb.data.draws import ShareOfDraws, joint_size, rand, randint, randn

CPU = torch.device("cpu")
#: Draws for so many images, and torch's own for ten.
DRAWS = {
    "rand": (lambda n, g: rand(n, 3, generator=g, device=CPU), lambda g: torch.rand(10, 3, generator=g)),
    "double": (
        lambda n, g: rand(n, generator=g, device=CPU, dtype=torch.float64),
        lambda g: torch.rand(10, generator=g, dtype=torch.float64),
    ),
    "randn": (lambda n, g: randn(n, 2, 2, generator=g, device=CPU), lambda g: torch.randn(10, 2, 2, generator=g)),
    "randint": (
        lambda n, g: randint(7, (n, 2), generator=g, device=CPU),
        lambda g: torch.randint(7, (10, 2), generator=g),
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_one_process_draws_what_torch_does(name):
    ours, torchs = DRAWS[name]
    generator, own = seeded(), seeded()
    for _ in range(2):
        drawn, expected = ours(10, own), torchs(generator)
        assert drawn.dtype == expected.dtype
        assert torch.equal(drawn, expected)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("sizes", [[10], [5, 5], [4, 3, 3], [1, 9], [0, 10], [10, 0]])
def test_shares_draw_the_rows_of_the_whole_batch(name, sizes):
    ours, torchs = DRAWS[name]
    whole = seeded()
    twice = [torchs(whole) for _ in range(2)]
    shares = [ShareOfDraws(seeded(), 10, sum(sizes[:i])) for i in range(len(sizes))]
    for expected in twice:
        drawn = [ours(size, share) for size, share in zip(sizes, shares, strict=True)]
        assert [len(rows) for rows in drawn] == sizes
        assert torch.equal(torch.cat(drawn), expected)
    for share in shares:
        assert torch.equal(share.generator.get_state(), whole.get_state())


def test_the_whole_batch_is_known():
    assert joint_size(seeded(), 4) == 4
    assert joint_size(ShareOfDraws(seeded(), 10, 6), 4) == 10
    assert joint_size(ShareOfDraws(seeded(), 10, 10), 0) == 10


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: ShareOfDraws(seeded(), 0, 0), "total = 0: expected a batch of at least one image"),
        (lambda: ShareOfDraws(seeded(), 4, 5), "first = 5: expected a place in a batch of 4"),
        (lambda: ShareOfDraws(seeded(), 4, -1), "first = -1"),
        (lambda: joint_size(ShareOfDraws(seeded(), 4, 2), 3), "3 images from place 2: .* a batch of 4"),
        (lambda: joint_size(seeded(), 0), "0 images: expected N ≥ 1"),
        (lambda: rand(3, generator=ShareOfDraws(seeded(), 4, 2), device=CPU), "3 images from place 2"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
