import torch
from sklearn.datasets import load_digits

from ltnb.data.sources import digits


def test_digits():
    source = digits()
    original = load_digits()
    assert source.images.shape == (1797, 1, 8, 8)
    assert source.images.dtype == torch.uint8
    assert source.labels.dtype == torch.int64
    assert source.class_names == tuple("0123456789")
    assert source.labels.tolist() == original.target.tolist()
    # 17 grey levels, stretched to the whole range and back without loss.
    assert torch.equal((source.images[:, 0] / 255 * 16).round(), torch.from_numpy(original.images).float())
    assert source.images.min() == 0
    assert source.images.max() == 255
