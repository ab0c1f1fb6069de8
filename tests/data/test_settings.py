import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from image_sources import write_folder
from pydantic import ValidationError

from ltnb.data.facts import FACTS
from ltnb.data.listings import LISTINGS
from ltnb.data.long_tail import class_groups
from ltnb.data.mappings import MAPPINGS
from ltnb.data.settings import DatasetSettings
from ltnb.data.sources import SOURCES, SOURCES_ON_DISK

NOISY = {"source": "digits", "imbalance": 10, "noise": "asymmetric", "noise_rate": 0.2, "noise_mapping": "digits"}
MNIST = {"source": "mnist", "root": "somewhere", "imbalance": 100}


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


def counts(settings):
    return settings.class_counts(settings.facts)


def label_counts(settings):
    return settings.expected_label_counts(settings.facts)


def test_every_field_says_what_it_is():
    assert all(field.description for field in DatasetSettings.model_fields.values())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source": "svhn"}, "digits"),
        ({"source": "mnist"}, "root is missing; expected the folder that mnist is read from"),
        ({"root": "there"}, "root = 'there' has no effect while source is 'digits'; expected source to be 'mnist'"),
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
        ({"test_per_class": "all"}, "test_per_class = all leaves nothing to train on"),
        ({"image_size": 4}, "greater than or equal to 8"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"imbalanse": 100}, "Extra inputs"),
    ],
)
def test_what_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        DatasetSettings(**{"source": "digits", "imbalance": 100, **changes})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"noise": "none"},
            "noise_rate = 0.2 has no effect while noise is 'none'; expected noise to be 'symmetric'",
        ),
        (
            {"noise": "symmetric"},
            "noise_mapping = 'digits' has no effect while noise is 'symmetric'; expected noise",
        ),
        ({"noise": "symmetrical"}, "symmetric"),
        ({"noise_rate": None}, "noise_rate is missing; expected a probability below 1 with noise 'asymmetric'"),
        ({"noise_rate": 1}, "noise_rate = 1: expected a probability of at least 0 and below 1"),
        ({"noise_rate": -0.1}, "noise_rate = -0.1: expected a probability"),
        ({"noise_rate": float("nan")}, "noise_rate = nan: expected a probability"),
        ({"noise_rate": "0.2"}, "valid number"),
        ({"noise_rate": 0}, "noise_rate = 0 has no effect; expected a positive one, or noise to be 'none'"),
        ({"noise_rate": [0.0] * 10}, "noise_rate = 0 has no effect"),
        ({"noise_rate": [0.2] * 9}, "noise_rate has 9 numbers: expected one, or one for each of 10 classes"),
        ({"noise_rate": [0.1] + [0.0] * 9}, "noise_rate = 0.1 of class 0 has no effect: noise_mapping leaves it out"),
        ({"noise_mapping": None}, "noise_mapping = None: expected 'digits' or 'mnist', or {class: other class}"),
        ({"noise_mapping": "cifar10"}, "noise_mapping = 'cifar10': expected 'digits' or 'mnist', or {class: other"),
        ({"noise_mapping": {7: 10}}, "noise_mapping 7 → 10: class 10: expected 0 … 9"),
        ({"noise_mapping": {12: 1}}, "noise_mapping 12 → 1: class 12: expected 0 … 9"),
        ({"noise_mapping": {3: 3}}, "noise_mapping 3 → 3: expected another class"),
        ({"noise_mapping": {"8": 1, 8: 2}}, "noise_mapping"),  # the same class twice
        (
            {"noise_mapping": {0: 1, 3: 8}, "noise_rate": [0.1] + [0.0] * 9},
            "noise_mapping 3 → 8 has no effect: noise_rate of class 3 is 0; expected a positive one",
        ),
        ({"noise_mapping": {}}, "noise_mapping is empty: expected at least one class"),
        ({"noise_mapping": {"seven": 1}}, "valid integer"),
        ({"noise_order": "before"}, "after-tail"),
    ],
)
def test_noise_that_cannot_be_is_refused(changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        DatasetSettings(**{**NOISY, **changes})


def test_the_order_of_noise_that_there_is_not_is_refused():
    with pytest.raises(ValidationError, match="noise_order = 'before-tail' has no effect while noise is 'none'"):
        DatasetSettings(source="digits", imbalance=10, noise_order="before-tail")


def test_noise_is_shown_where_there_is_some_and_read_back():
    for changes, shown in (
        ({}, {"noise", "noise_rate", "noise_mapping", "noise_order"}),
        ({"noise_mapping": {8: 1, 1: 8}, "noise_order": "before-tail"}, {"noise_mapping", "noise_order"}),
        ({"noise": "symmetric", "noise_mapping": None, "noise_rate": [0.1] * 10}, {"noise_rate", "noise_order"}),
    ):
        settings = DatasetSettings(**{**NOISY, **changes})
        text = json.dumps(settings.model_dump(mode="json"))  # its keys are text, whatever they were
        assert DatasetSettings.model_validate(json.loads(text)) == settings
        assert shown <= json.loads(text).keys()
    assert "noise_mapping" not in settings.model_dump()
    assert "noise" not in DatasetSettings(source="digits", imbalance=10, noise="none").model_dump()


def test_a_mapping_is_a_name_or_written_out():
    assert DatasetSettings(**NOISY).mapping == MAPPINGS["digits"]
    assert DatasetSettings(**{**NOISY, "noise_mapping": {8: 1}}).mapping == {8: 1}
    assert DatasetSettings(source="digits", imbalance=10).mapping is None


def test_the_label_counts_that_are_expected():
    plain = DatasetSettings(source="digits", imbalance=100)
    assert label_counts(plain) == counts(plain)
    symmetric = DatasetSettings(source="digits", imbalance=100, noise="symmetric", noise_rate=0.4)
    others = sum(counts(plain))
    by_hand = [round(0.6 * n + 0.4 / 9 * (others - n)) for n in counts(plain)]
    assert label_counts(symmetric) == by_hand
    assert by_hand[0] < 100 < counts(plain)[0]
    before = symmetric.model_copy(update={"noise_order": "before-tail"})
    assert label_counts(before) == counts(plain)
    gone = DatasetSettings(**{**NOISY, "imbalance": 100, "noise_rate": 0.9, "noise_mapping": {9: 0, 0: 1}})
    assert label_counts(gone) == [round(12.4 + 0.9), round(74 + 111.6), 44, 26, 16, 9, 5, 3, 2, 1]


def test_mnist_has_a_test_split_and_a_size_of_its_own():
    settings = DatasetSettings(**MNIST)
    assert (settings.test_per_class, settings.image_size) == ("all", 28)
    assert counts(settings)[0] == 5421
    assert counts(settings)[-1] == 54
    assert counts(DatasetSettings(**MNIST, test_per_class=892, largest=5421))[0] == 5421
    with pytest.raises(ValidationError, match="test_per_class = 893: expected 'all' or at most 892, the smallest"):
        DatasetSettings(**MNIST, test_per_class=893)
    with pytest.raises(ValidationError, match="largest = 5422: expected at most 5421"):
        DatasetSettings(**MNIST, largest=5422)
    with pytest.raises(ValidationError, match="test_per_class"):
        DatasetSettings(**MNIST, test_per_class="some")


@pytest.mark.parametrize(("source", "largest", "total"), [("cifar10", 5000, 12406), ("cifar100", 500, 10847)])
def test_cifar_with_the_papers_tail(source, largest, total):
    settings = DatasetSettings(source=source, root="data", imbalance=100)
    assert counts(settings)[0] == largest
    assert sum(counts(settings)) == total
    assert (settings.test_per_class, settings.image_size) == ("all", 32)
    groups = {name: len(classes) for name, classes in class_groups(counts(settings)).items()}
    assert groups == ({"many": 35, "medium": 35, "few": 30} if source == "cifar100" else {"many": 8, "medium": 2})


def test_a_tail_in_one_step_and_no_cut_at_all():
    step = DatasetSettings(source="cifar10", root="data", imbalance=50, tail="step")
    assert counts(step) == [5000] * 5 + [100] * 5
    assert counts(DatasetSettings(source="mnist", root="data", imbalance="as-is")) == list(FACTS["mnist"].class_sizes)
    assert counts(DatasetSettings(source="digits", imbalance="as-is")) == [n - 50 for n in FACTS["digits"].class_sizes]


def test_how_a_tail_is_cut_is_recorded():
    ever = {"source", "imbalance", "largest", "test_per_class", "image_size", "seed"}
    # What was recorded before there was a choice stays as it was.
    assert (
        DatasetSettings(source="digits", imbalance=10, tail="exponential", subset="shuffled").model_dump().keys()
        == ever
    )
    for name, value in (("tail", "step"), ("subset", "first")):
        settings = DatasetSettings(source="digits", imbalance=10, **{name: value})
        assert settings.model_dump().items() >= {name: value}.items()
        assert settings.model_dump().keys() == ever | {name}
        assert DatasetSettings.model_validate(json.loads(json.dumps(settings.model_dump(mode="json")))) == settings
    cifar = DatasetSettings(source="cifar10", root="data", imbalance=10, download=True)
    assert cifar.model_dump().keys() == ever | {"root", "tail", "subset"}
    whole = DatasetSettings(source="mnist", root="data", imbalance="as-is")
    assert whole.model_dump().keys() == {"source", "root", "imbalance", "test_per_class", "image_size", "seed"}
    assert DatasetSettings.model_validate(whole.model_dump()) == whole


FOLDER = {"source": "folder", "root": "images", "imbalance": "as-is", "image_size": 32}
LISTS = {**FOLDER, "source": "lists", "train_list": "train.txt", "test_list": "test.txt"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({**FOLDER, "root": None}, "root is missing; expected the folder that folder is read from"),
        ({**FOLDER, "source": "npz", "root": None}, "root is missing; expected the file that npz is read from"),
        ({**LISTS, "train_list": None}, "train_list is missing; expected the list of train images"),
        ({**LISTS, "test_list": None}, "test_list is missing; expected the list of test images"),
        ({**FOLDER, "test_root": "val"}, "test_root = 'val' has no effect while source is 'folder'"),
        ({**FOLDER, "classes": 2}, "classes = 2 has no effect while source is 'folder'; expected source to be 'lists'"),
        ({**LISTS, "classes": 1}, "greater than or equal to 2"),
        ({**FOLDER, "source": "npz", "held_in": "files"}, "held_in = 'files' has no effect while source is 'npz'"),
        ({**FOLDER, "held_in": "memory"}, "'auto' or 'files'"),
        ({**LISTS, "source": "folder"}, "train_list = 'train.txt' has no effect while source is 'folder'"),
        ({**FOLDER, "download": True}, "download = True has no effect while source is 'folder'; expected .*'cifar10'"),
        ({"source": "cifar10", "imbalance": 9}, "root is missing; expected the folder that cifar10 is read from"),
        ({key: FOLDER[key] for key in FOLDER if key != "image_size"}, "image_size is missing; expected one for all"),
        ({**FOLDER, "imbalance": "as is"}, "as-is"),
        ({**FOLDER, "largest": 5}, "largest = 5 has no effect while imbalance is 'as-is'; expected a factor"),
        ({**FOLDER, "tail": "step"}, "tail = 'step' has no effect while imbalance is 'as-is'"),
        ({**FOLDER, "subset": "first"}, "subset = 'first' has no effect while imbalance is 'as-is'"),
        (
            {**FOLDER, "noise": "symmetric", "noise_rate": 0.1, "noise_order": "before-tail"},
            "noise_order = 'before-tail' has no effect while imbalance is 'as-is'",
        ),
        ({**FOLDER, "noise": "symmetric"}, "noise_rate is missing"),
        (
            {**FOLDER, "noise": "asymmetric", "noise_rate": 0.1, "noise_mapping": "pets"},
            "noise_mapping = 'pets': expected 'digits' or .*, or {class: other class}",
        ),
        ({**MNIST, "tail": "steps"}, "exponential"),
    ],
)
def test_what_cannot_be_read_from_disk_is_refused(given, complaint):
    with pytest.raises(ValidationError, match=complaint):
        DatasetSettings(**given)


def test_settings_of_files_are_checked_without_them():
    # A run is read where its images are not.
    settings = DatasetSettings(**FOLDER)
    assert settings.facts is None
    assert settings.test_per_class == "all"
    assert DatasetSettings.model_validate(settings.model_dump()) == settings


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"largest": 4, "imbalance": 2}, "largest = 4: expected at most 3, what testing leaves of the smallest class"),
        ({"imbalance": 4}, "imbalance = 4 leaves the smallest class without an image: expected at most the 3 images"),
        ({"test_per_class": 3}, "test_per_class = 3: expected 'all' or at most 2, the smallest class in the test"),
        (
            {"noise": "symmetric", "noise_rate": [0.1] * 9},
            "noise_rate has 9 numbers: expected one, or one for each of 3",
        ),
        (
            {"noise": "asymmetric", "noise_rate": 0.1, "noise_mapping": "digits"},
            "noise_mapping = 'digits': expected {class: other class}, with noise 'asymmetric' of folder",
        ),
        ({"noise": "asymmetric", "noise_rate": 0.1, "noise_mapping": {0: 3}}, "noise_mapping 0 → 3: class 3"),
        ({"image_size": 8000}, None),  # 4.1 GiB stay in files
    ],
)
def test_what_does_not_fit_the_files_is_refused_when_they_are_looked_at(tmp_path, changes, complaint):
    write_folder(tmp_path / "images", {"train": {"a": 3, "b": 7, "c": 4}, "test": {"a": 3, "b": 2, "c": 4}})
    settings = DatasetSettings(**{**FOLDER, **changes})
    if complaint is None:
        assert settings.facts_in(tmp_path).class_sizes == (3, 7, 4)
        return
    with pytest.raises(ValueError, match=complaint):
        settings.facts_in(tmp_path)


def test_what_fits_the_files(tmp_path):
    write_folder(tmp_path / "images", {"train": {"a": 3, "b": 7}, "test": {"a": 1, "b": 2}})
    settings = DatasetSettings(**FOLDER)
    assert settings.class_counts(settings.facts_in(tmp_path)) == [3, 7]
    cut = DatasetSettings(**{**FOLDER, "imbalance": 3})
    assert cut.class_counts(cut.facts_in(tmp_path)) == [3, 1]
    absolute = DatasetSettings(**{**FOLDER, "root": str(tmp_path / "images")})
    assert absolute.facts_in(Path("elsewhere")) == settings.facts_in(tmp_path)
    known = DatasetSettings(source="digits", imbalance=1)
    assert known.facts_in(Path("elsewhere")) is FACTS["digits"]


def test_what_is_too_large_for_memory_stays_in_files():
    facts = dataclasses.replace(FACTS["cifar100"], class_sizes=(115_846,), test_sizes=(50_000,))
    settings = DatasetSettings(**{**LISTS, "image_size": 64})
    settings.check(facts)
    assert not settings.stays_in_files(facts)
    for larger in ({"image_size": 224}, {"decoded_size": 224}, {"held_in": "files"}):
        assert DatasetSettings(**{**LISTS, "image_size": 64, **larger}).stays_in_files(facts)


@pytest.mark.parametrize("source", ["npz", "cifar100"])
@pytest.mark.parametrize("name", ["image_size", "decoded_size"])
def test_what_has_no_files_of_its_own_is_too_large(source, name):
    facts = dataclasses.replace(FACTS["cifar100"], class_sizes=(500,) * 200, test_sizes=(0,) * 200)
    settings = DatasetSettings(source=source, root=".", imbalance="as-is", image_size=32)
    settings.check(facts)
    told = rf"{name} = 224: 100000 images of 3 × 224 × 224 bytes are 14\.0 GiB; expected at most 4, since those of"
    with pytest.raises(ValueError, match=rf"{told} {source} are held in memory: a smaller {name}, largest or"):
        settings.model_copy(update={name: 224}).check(facts)


def test_the_size_of_what_is_decoded():
    plain, larger = DatasetSettings(**FOLDER), DatasetSettings(**FOLDER, decoded_size=40)
    assert (plain.stored_size, larger.stored_size) == (32, 40)
    assert larger.model_dump() == {**plain.model_dump(), "decoded_size": 40}
    assert DatasetSettings(source="digits", imbalance=1, decoded_size=20).stored_size == 20
    with pytest.raises(ValidationError, match="decoded_size = 31: expected at least image_size, the 32 pixels"):
        DatasetSettings(**FOLDER, decoded_size=31)
    with pytest.raises(ValidationError, match="decoded_size = 15: expected at least image_size, the 16 pixels"):
        DatasetSettings(source="digits", imbalance=1, decoded_size=15)


def test_what_says_nothing_is_not_recorded():
    later = {"test_root", "classes", "decoded_size", "held_in"}
    assert not later & DatasetSettings(**LISTS).model_dump().keys()
    said = {"test_root": "elsewhere", "classes": 50, "decoded_size": 64, "held_in": "files"}
    settings = DatasetSettings(**LISTS, **said)
    assert settings.model_dump().items() >= said.items()
    assert DatasetSettings.model_validate(settings.model_dump()) == settings


def test_settings_cannot_be_changed():
    settings = DatasetSettings(source="digits", imbalance=100)
    with pytest.raises(ValidationError, match="frozen"):
        settings.imbalance = 10


def test_the_facts_of_the_sources_that_come_with_a_package():
    for name, read in SOURCES.items():
        source, facts = read(), FACTS[name]
        assert list(facts.class_sizes) == source.labels.bincount().tolist()
        assert facts.num_classes == len(source.class_names)
        assert facts.channels == source.images.shape[1]
        assert source.is_test is facts.test_sizes is None


def test_every_source_has_facts_that_fit():
    assert FACTS.keys() == SOURCES.keys() | SOURCES_ON_DISK.keys()
    assert {*FACTS, *LISTINGS} == set(get_args(DatasetSettings.model_fields["source"].annotation))
    assert {name for name, facts in FACTS.items() if facts.on_disk} == set(SOURCES_ON_DISK)
    for facts in FACTS.values():
        for mapping in facts.noise_mappings:
            assert {*MAPPINGS[mapping], *MAPPINGS[mapping].values()} <= set(range(facts.num_classes))


def test_class_counts_are_those_of_the_profile():
    assert counts(DatasetSettings(source="digits", imbalance=100)) == [124, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    assert counts(DatasetSettings(source="digits", imbalance=4, largest=8)) == [8, 6, 5, 5, 4, 3, 3, 2, 2, 2]


def test_checking_settings_does_not_wait_for_torch():
    check = (
        "import sys; from ltnb.data.settings import DatasetSettings\n"
        "DatasetSettings(source='folder', root='.', imbalance=2, image_size=8)\n"
        "sys.exit(not {'torch', 'sklearn', 'numpy'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_average_rate_is_that_of_the_classes_that_may_have_wrong_labels():
    assert DatasetSettings(source="digits", imbalance=10).average_noise_rate == 0
    assert DatasetSettings(**NOISY).average_noise_rate == 0.2
    by_class = {"noise_mapping": {0: 1, 3: 8}, "noise_rate": [0.4, 0, 0, 0.2, 0, 0, 0, 0, 0, 0]}
    assert DatasetSettings(**{**NOISY, **by_class}).average_noise_rate == pytest.approx(0.3)
    symmetric = {"noise": "symmetric", "noise_mapping": None, "noise_rate": [0.1] * 5 + [0.3] * 5}
    assert DatasetSettings(**{**NOISY, **symmetric}).average_noise_rate == pytest.approx(0.2)
