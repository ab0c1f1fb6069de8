import subprocess
import sys

import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ltnb.data.mappings import CIFAR10_CLASSES, CIFAR100_CLASSES, CIFAR100_SUPERCLASSES, MAPPINGS

#: The number of each class's superclass as the files of CIFAR-100 have it (`coarse_labels` beside `fine_labels`).
COARSE = [
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10,
    12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16,
    12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14,
    13,
]  # fmt: skip


def test_mnist_and_cifar10_are_the_papers() -> None:
    assert MAPPINGS["mnist"] == {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}
    by_name = {CIFAR10_CLASSES[a]: CIFAR10_CLASSES[b] for a, b in MAPPINGS["cifar10"].items()}
    assert by_name == {"truck": "automobile", "bird": "airplane", "cat": "dog", "dog": "cat", "deer": "horse"}


def test_every_class_of_cifar100_has_one_of_twenty_superclasses() -> None:
    assert len(CIFAR100_SUPERCLASSES) == 20
    assert all(len(names) == 5 for names in CIFAR100_SUPERCLASSES.values())
    assert len(set(CIFAR100_CLASSES)) == len(CIFAR100_CLASSES) == 100
    assert CIFAR100_CLASSES[:5] == ("apple", "aquarium_fish", "baby", "bear", "beaver")
    assert CIFAR100_CLASSES[-5:] == ("whale", "willow_tree", "wolf", "woman", "worm")


def test_the_superclasses_are_those_of_the_files() -> None:
    ours = list(CIFAR100_SUPERCLASSES.values())
    assert [next(i for i, names in enumerate(ours) if name in names) for name in CIFAR100_CLASSES] == COARSE


@pytest.mark.parametrize("name", ["cifar100-blocks", "cifar100-superclasses"])
def test_the_mappings_of_cifar100_go_round_in_fives(name: str) -> None:
    mapping = MAPPINGS[name]
    assert sorted(mapping) == sorted(mapping.values()) == list(range(100))
    for start in mapping:
        way = [start]
        while mapping[way[-1]] != start:
            way.append(mapping[way[-1]])
        assert len(way) == 5
        if name == "cifar100-blocks":
            assert {k // 5 for k in way} == {start // 5}
            assert mapping[start] == start + 1 or start % 5 == 4
        else:
            assert {COARSE[k] for k in way} == {COARSE[start]}
            assert mapping[start] > start or start == max(way)


def test_blocks_are_not_superclasses() -> None:
    assert MAPPINGS["cifar100-blocks"] != MAPPINGS["cifar100-superclasses"]
    assert len({COARSE[k] for k in range(5)}) > 1


def test_the_digits_are_mapped_to_what_they_are_most_often_mistaken_for() -> None:
    digits = load_digits()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    predicted = cross_val_predict(LogisticRegression(max_iter=500), digits.data / 16, digits.target, cv=folds)
    mistakes = confusion_matrix(digits.target, predicted)
    mistakes[range(10), range(10)] = 0
    for digit, other in MAPPINGS["digits"].items():
        assert mistakes[digit].argmax() == other


def test_mappings_are_read_without_torch() -> None:
    code = "import sys, ltnb.data.mappings, ltnb.data.transitions; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
