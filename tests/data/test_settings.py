import subprocess
import sys

import pytest
from pydantic import ValidationError

from ltnb.data.settings import NUM_CLASSES, SMALLEST_CLASS, DatasetSettings
from ltnb.data.sources import SOURCES


def test_the_defaults_are_those_of_the_default_experiment():
    settings = DatasetSettings(source="digits", imbalance=100)
    assert settings.model_dump() == {
        "source": "digits",
        "imbalance": 100.0,
        "largest": None,
        "test_per_class": 50,
        "image_size": 16,
        "seed": 0,
    }


def test_every_field_says_what_it_is():
    assert all(field.description for field in DatasetSettings.model_fields.values())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source": "mnist"}, "digits"),
        ({"imbalance": 0.5}, "greater than or equal to 1"),
        ({"imbalance": float("nan")}, "imbalance"),
        ({"imbalance": float("inf")}, "finite"),
        ({"imbalance": "100"}, "valid number"),
        ({"imbalance": True}, "valid number"),
        ({"imbalance": 125}, "imbalance = 125 leaves the smallest class without an image.*124"),
        ({"largest": 50}, "imbalance = 100 leaves the smallest class without an image.*50"),
        ({"largest": 125}, "largest = 125: expected at most 124"),
        ({"largest": 0}, "greater than or equal to 1"),
        ({"test_per_class": 0}, "greater than or equal to 1"),
        ({"test_per_class": 50.0}, "valid integer"),
        ({"test_per_class": 174}, "test_per_class = 174 leaves nothing to train on"),
        ({"image_size": 4}, "greater than or equal to 8"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"imbalanse": 100}, "Extra inputs"),
    ],
)
def test_what_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        DatasetSettings(**{"source": "digits", "imbalance": 100, **changes})


def test_settings_cannot_be_changed():
    settings = DatasetSettings(source="digits", imbalance=100)
    with pytest.raises(ValidationError, match="frozen"):
        settings.imbalance = 10


def test_every_source_has_the_smallest_class_that_is_stated():
    assert {name: int(read().labels.bincount().min()) for name, read in SOURCES.items()} == SMALLEST_CLASS


def test_every_source_has_as_many_classes_as_are_stated():
    assert {name: len(read().class_names) for name, read in SOURCES.items()} == NUM_CLASSES


def test_class_counts_are_those_of_the_profile():
    assert DatasetSettings(source="digits", imbalance=100).class_counts == [124, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    assert DatasetSettings(source="digits", imbalance=4, largest=8).class_counts == [8, 6, 5, 5, 4, 3, 3, 2, 2, 2]


def test_checking_settings_does_not_wait_for_torch():
    check = "import sys, ltnb.data.settings; sys.exit(not {'torch', 'sklearn', 'numpy'}.isdisjoint(sys.modules))"
    subprocess.run([sys.executable, "-c", check], check=True)
