"""params.yaml: what is accepted, and what each mistake is told."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from image_sources import write_folder

from ltnb import params
from ltnb.methods import BCL, CrossEntropy, SupervisedContrastive
from ltnb.models.encoders import NAMES

GOOD = """\
datasets:
  digits-if100: {source: digits, imbalance: 100}
methods:
  ce: {system: ce}
  bcl: {system: bcl, temperature: 1e-1}
seeds: [0, 1]
training: {epochs: 10}
"""


PRESETS = Path(__file__).parents[1] / "presets"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "params.yaml"


def faults(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(params.ParamsError) as error:
        params.load(file)
    return str(error.value)


def test_the_default_experiment_is_valid() -> None:
    experiment = params.load(Path(__file__).parents[1] / "params.yaml")
    assert experiment.datasets
    assert experiment.methods


@pytest.mark.parametrize("preset", sorted(PRESETS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_preset_is_valid(preset: Path) -> None:
    assert params.load(preset).methods


def test_every_method_is_checked_against_the_classes_of_every_dataset(file: Path) -> None:
    two = GOOD.replace("methods:", "  digits-few: {source: digits, imbalance: 2, largest: 20}\nmethods:").replace(
        "  bcl:", "  fr: {system: featrecon}\n  pal: {system: pal, feature_dim: 2}\n  bcl:"
    )
    first, second = faults(file, two).splitlines()
    assert "6: methods.fr: nearest_heads: 2 of 0 classes" in first
    assert "(with the classes of digits-few)" in first
    assert "7: methods.pal: feature_dim: 2" in second


def test_methods_are_checked_against_the_labels_that_noise_is_expected_to_leave(file: Path) -> None:
    text = GOOD.replace("{system: ce}", "{system: featrecon, head_above: 100, nearest_heads: 1}")
    file.write_text(text, encoding="utf-8")
    assert params.load(file)  # 124 images of the largest class, one head
    message = faults(file, text.replace("imbalance: 100", "imbalance: 100, noise: symmetric, noise_rate: 0.4"))
    assert "4: methods.ce: nearest_heads: 1 of 0 classes with more than 100 training images" in message


def test_a_row_is_its_systems_defaults_and_what_it_changes(file: Path) -> None:
    file.write_text(GOOD.replace("1e-1", "0.2, averaging: L2"), encoding="utf-8")
    method = params.load(file).run("digits-if100", "bcl", 3).method
    assert isinstance(method, BCL)
    assert (method.temperature, method.averaging) == (0.2, "L2")
    assert (method.contrast, method.complement, method.views) == ("balanced", True, ("strong", "strong", "strong"))


def test_a_protocol_is_read_again_from_what_a_run_records(file: Path) -> None:
    protocol = "{epochs: 10, schedule: steps, decay_epochs: [6, 8], decay: 0.2, nesterov: true, clip_norm: 5}"
    for text in (GOOD, GOOD.replace("{epochs: 10}", protocol)):
        file.write_text(text)
        training = params.load(file).training
        assert params.TrainingSettings.model_validate(training.model_dump(mode="json")) == training
    assert (training.stage.decay_epochs, training.stage.decay) == ((6, 8), 0.2)
    short = training.shortened(3)
    assert params.TrainingSettings.model_validate(short.model_dump(mode="json")) == short
    assert (short.epochs, short.schedule, short.clip_norm) == (3, "cosine", 5)
    assert training.shortened(20).epochs == 10


def test_exponents_are_numbers_as_they_are_to_dvc(file: Path) -> None:
    file.write_text(GOOD, encoding="utf-8")
    assert params.load(file).methods["bcl"].temperature == 0.1


def test_every_encoder_can_be_asked_for_by_its_name(file: Path) -> None:
    assert get_args(params.TrainingSettings.model_fields["encoder"].annotation) == NAMES
    file.write_text(GOOD.replace("{epochs: 10}", "{encoder: resnet32-wide}"), encoding="utf-8")
    assert params.load(file).training.encoder == "resnet32-wide"


def test_slots_without_effect_are_not_shown() -> None:
    assert set(CrossEntropy().slots()) == {
        "system",
        "views",
        "classified_views",
        "last_relu",
        "feature_dim",
        "feature_norm",
        "sampler",
        "classifier",
        "classification",
        "classification_weight",
        "class_weighting",
        "contrast",
        "spread",
        "second_stage",
        "correction",
        "snapshots",
        "learning_rate",
        "weight_decay",
    }
    assert "averaging" not in SupervisedContrastive().slots()
    assert BCL(classifier="cosine").slots()["classifier_scale"] == 30


def test_a_cross_of_two_systems_is_a_row(file: Path) -> None:
    file.write_text(
        GOOD.replace("{system: ce}", "{system: bcl, classification: cross-entropy, classifier: cosine}"),
        encoding="utf-8",
    )
    assert params.load(file).methods["ce"].classification == "cross-entropy"


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        (
            "temperature: 1e-1",
            "temprature: 0.1",
            "5: methods.bcl.temprature: 0.1: unknown key; did you mean temperature?",
        ),
        (
            "imbalance: 100",
            "imbalanse: 100",
            "2: datasets.digits-if100.imbalanse: 100: unknown key; did you mean imbalance?",
        ),
        (
            "imbalance: 100",
            "imbalance: 0.5",
            "2: datasets.digits-if100.imbalance: 0.5: should be greater than or equal to 1",
        ),
        ("imbalance: 100", "imbalance: .inf", "2: datasets.digits-if100.imbalance: inf: should be a finite number"),
        (
            "imbalance: 100",
            "imbalance: 100, noise: symmetric, noise_rate: 1.2",
            "2: datasets.digits-if100: noise_rate = 1.2: expected a probability of at least 0 and below 1",
        ),
        (
            "imbalance: 100",
            "imbalance: 100, noise: symetric",
            "2: datasets.digits-if100.noise: 'symetric'; did you mean symmetric?",
        ),
        (
            "imbalance: 100",
            "imbalance: 100, noise_rate: '0.2'",
            "2: datasets.digits-if100.noise_rate: '0.2': should be a valid number",
        ),
        (
            "imbalance: 100",
            "imbalance: 100, noise: asymmetric, noise_rate: 0.2, noise_mapping: {3: 12}",
            "2: datasets.digits-if100: noise_mapping 3 → 12: class 12: expected 0 … 9",
        ),
        (
            "imbalance: 100",
            "imbalance: 100, noise_mapping: {a: 1}",
            "2: datasets.digits-if100.noise_mapping: 'a': should be a valid integer",
        ),
        (
            "imbalance: 100",
            "imbalance: 100, noise_mapping: {3: 1.5}",
            "2: datasets.digits-if100.noise_mapping.3: 1.5: should be a valid integer",
        ),
        (
            "imbalance: 100",
            "imbalance: 100, noise_rates: 0.2",
            "2: datasets.digits-if100.noise_rates: 0.2: unknown key; did you mean noise_rate?",
        ),
        (
            "{source: digits,",
            "{source: mnist,",
            "2: datasets.digits-if100: root is missing; expected the folder that mnist is read from",
        ),
        ("{epochs: 10}", "{epoch: 10}", "7: training.epoch: 10: unknown key; did you mean epochs?"),
        ("{epochs: 10}", "{epochs: 10.5}", "7: training.epochs: 10.5: should be a valid integer"),
        ("{epochs: 10}", "{epochs: 3}", "7: training: warmup_epochs: 5 takes all 3 epochs; expected fewer"),
        (
            "{epochs: 10}",
            "{decay: 0.5}",
            "7: training: decay: 0.5 has no effect while schedule is 'cosine'; expected 'steps' or 'exponential'",
        ),
        (
            "{epochs: 10}",
            "{schedule: exponential, decay: 0.9, decay_epochs: [20]}",
            "7: training: decay_epochs: [20] has no effect while schedule is 'exponential'; expected schedule to be",
        ),
        ("{epochs: 10}", "{schedule: exponential}", "7: training: decay: is missing; expected what the learning rate"),
        *(
            (
                "{epochs: 10}",
                f"{{epochs: 10, schedule: steps, decay_epochs: {epochs}}}",
                f"7: training: decay_epochs: {epochs}: expected epochs in rising order, after the 5 of the warm-up and "
                "before the last, 10",
            )
            for epochs in ([], [8, 7], [7, 7], [5], [7, 10])
        ),
        ("{epochs: 10}", "{momentum: 0, nesterov: true}", "7: training: nesterov: True has no effect while momentum"),
        ("{epochs: 10}", "{clip_norm: 0}", "7: training.clip_norm: 0: should be greater than 0"),
        (
            "{epochs: 10}",
            "{compiled: true, processes: 2}",
            "7: training: compiled: True does not go with processes: 2, whose batch normalisations wait",
        ),
        ("{epochs: 10}", "{processes: 0}", "7: training.processes: 0: should be greater than or equal to 1"),
        ("{epochs: 10}", "{precision: fp16}", "7: training.precision: 'fp16'"),
        ("{epochs: 10}", "{encoder: resnet9}", "7: training.encoder: 'resnet9'; did you mean resnet8?"),
        ("seeds: [0, 1]", "seads: [0, 1]", "6: seads: [0, 1]: unknown key; did you mean seeds?"),
        ("seeds: [0, 1]", "seeds: [0, 0]", "6: seeds: [0, 0] has a seed twice; expected each once"),
        ("seeds: [0, 1]", "seeds: [-1]", "6: seeds.0: -1: should be greater than or equal to 0"),
        ("seeds: [0, 1]", "seeds: []", "6: seeds: []: "),
        ("system: bcl", "system: bcll", "5: methods.bcl.system: 'bcll': unknown system; did you mean bcl?"),
        ("system: bcl, ", "", "5: methods.bcl.system: is missing; expected one of ce, logit-adjustment, supcon, bcl"),
        ("1e-1", "0", "5: methods.bcl.temperature: 0: should be greater than or equal to 0.001"),
        ("1e-1", "true", "5: methods.bcl.temperature: True: should be a valid number"),
        ("1e-1", "'0.1'", "5: methods.bcl.temperature: '0.1': should be a valid number"),
        ("1e-1", ".nan", "5: methods.bcl.temperature: nan: should be a finite number"),
        ("1e-1", "1, averaging: l1", "5: methods.bcl.averaging: 'l1'; did you mean L1?"),
        ("1e-1", "1, views: [weak, stong]", "5: methods.bcl.views.1: 'stong'; did you mean strong?"),
        ("1e-1", "1, views: []", "5: methods.bcl.views: []: expected at least one"),
        ("1e-1", "1, averaging: L3, complement: false", "5: methods.bcl: averaging: 'L3' contrasts with prototypes"),
        (
            "{system: ce}",
            "{system: bce3s, negative_rate: 0}",
            "4: methods.ce.negative_rate: 0: should be greater than 0",
        ),
        (
            "{system: ce}",
            "{system: featrecon, head_mix: 1.5}",
            "4: methods.ce.head_mix: 1.5: should be less than or equal to 1",
        ),
        (
            "{system: ce}",
            "{system: featrecon, synthetic_features: equal}",
            "4: methods.ce.synthetic_features: 'equal'; did you mean equalise?",
        ),
        (
            "{system: ce}",
            "{system: featrecon, nearest_heads: 5}",
            "4: methods.ce: nearest_heads: 5 of 4 classes with more than 20 training images; expected at most 4, "
            "or a head_above that leaves more heads (with the classes of digits-if100)",
        ),
        (
            "{system: ce}",
            "{system: featrecon, synthesis_start: 1}",
            "4: methods.ce.synthesis_start: 1: should be less than 1",
        ),
        (
            "seeds: [0, 1]\ntraining: {epochs: 10}",
            "  fr: {system: featrecon}\nseeds: [0]\ntraining: {epochs: 1, warmup_epochs: 0}",
            "6: methods.fr: synthesis: 'supports' never begins in 1 epochs; expected 2",
        ),
        (
            "{system: ce}",
            "{system: pal, feature_dim: 8}",
            "4: methods.ce: feature_dim: 8 cannot hold the simplex of 10 anchors; expected at least 9, or anchors",
        ),
        (
            "{system: ce}",
            "{system: bcl, prototypes: anchored, projection_dim: 8}",
            "4: methods.ce: projection_dim: 8 cannot hold the simplex of 10 anchored prototypes; expected at least 9",
        ),
        ("{system: ce}", "{system: ce, spread: bce}", "4: methods.ce.spread: 'bce'"),
        (
            "{system: ce}",
            "{system: ce, temperature: 1}",
            "4: methods.ce: temperature: 1.0 has no effect while contrast is 'none'",
        ),
        ("{system: ce}", "{system: ce, classifier_scale: 9}", "4: methods.ce: classifier_scale: 9.0 has no effect"),
        ("{system: ce}", "{system: ce, views: [weak, weak]}", "4: methods.ce: views: ['weak', 'weak'] has views"),
        ("  ce:", "  Ce x:", "4: methods.Ce x: 'Ce x': expected at most 60 lower-case letters"),
        ("  ce:", "  bcl:", "is not valid YAML"),
        ("{system: ce}", "ce", "4: methods.ce: 'ce': expected a mapping"),
        ("  ce:", "  compare:", "methods.compare: 'compare' is taken by the pipeline"),
        ("  digits-if100:", "  papers:", "datasets.papers: 'papers' is taken by the pipeline"),
        ("  ce:", "  ce-0.1:", "methods.ce-0.1: 'ce-0.1': expected at most 60 lower-case letters"),
        ("  ce:", "  b-ce: {system: ce}\n  ce:", "called a-b-ce; expected names that stay apart"),
        ("{epochs: 10}", "", "7: training: None: expected a mapping"),
    ],
)
def test_a_mistake_is_told_with_line_path_value_and_remedy(file: Path, good: str, bad: str, told: str) -> None:
    assert good in GOOD
    text = GOOD.replace(good, bad, 1)
    if "a-b-ce" in told:
        text = text.replace("digits-if100:", "a: {source: digits, imbalance: 2}\n  a-b:")
    message = faults(file, text)
    assert message.startswith(f"{file}:")
    assert told in message


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    message = faults(file, GOOD.replace("imbalance", "imbalanse").replace("epochs", "epoch"))
    assert len(message.splitlines()) == 3  # the misspelt imbalance is missing, too


def test_an_empty_file_and_a_missing_one(file: Path) -> None:
    assert str(file) in faults(file, "")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(params.ParamsError, match=r"cannot be read .*UTF-8"):
        params.load(file)
    with pytest.raises(params.ParamsError, match="cannot be read"):
        params.load(file.with_name("none.yaml"))


def test_a_run_that_is_not_in_the_file(file: Path) -> None:
    file.write_text(GOOD, encoding="utf-8")
    experiment = params.load(file)
    with pytest.raises(params.ParamsError, match=r"methods\.blc is not in params\.yaml; did you mean bcl\?"):
        experiment.run("digits-if100", "blc", 0)
    with pytest.raises(
        params.ParamsError, match=r"datasets\.mnist is not in params\.yaml; expected one of digits-if100"
    ):
        experiment.run("mnist", "bcl", 0)


OF_FILES = """\
datasets:
  pets: {source: folder, root: images, imbalance: as-is, image_size: 8}
methods:
  ce: {system: ce}
seeds: [0]
training: {epochs: 10}
"""


def test_what_only_files_tell_is_checked_when_they_are_looked_at(file: Path) -> None:
    file.write_text(OF_FILES, encoding="utf-8")
    experiment = params.load(file)  # without them
    with pytest.raises(params.ParamsError, match=rf"{file}: datasets\.pets: {file.parent}/images/train is missing"):
        params.check_files(experiment, file)
    write_folder(file.parent / "images", {"train": {"a": 3, "b": 2, "c": 2, "d": 2}, "test": dict.fromkeys("abcd", 1)})
    params.check_files(experiment, file)
    anchors = OF_FILES.replace("{system: ce}", "{system: pal, feature_dim: 2}").replace("as-is", "3")
    file.write_text(anchors, encoding="utf-8")
    with pytest.raises(params.ParamsError, match=rf"{file}: datasets\.pets: imbalance = 3 leaves the smallest class"):
        params.check_files(params.load(file), file)
    file.write_text(anchors.replace("imbalance: 3", "imbalance: 2"), encoding="utf-8")
    told = rf"{file}: methods\.ce: feature_dim: 2 cannot hold the simplex of 4 anchors.*\(with the classes of pets\)"
    with pytest.raises(params.ParamsError, match=told):
        params.check_files(params.load(file), file)


def test_the_command_looks_at_files(file: Path) -> None:
    file.write_text(OF_FILES, encoding="utf-8")
    command = [sys.executable, "-m", "ltnb.params"]
    result = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"{file}: datasets.pets: {file.parent}/images/train is missing" in result.stderr
    write_folder(file.parent / "images", {"train": {"a": 3, "b": 2}, "test": {"a": 1, "b": 1}})
    subprocess.run(command, cwd=file.parent, check=True)


def test_the_project_is_found_from_any_folder_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "params.yaml").write_text(GOOD, encoding="utf-8")
    below = tmp_path / "notebooks" / "experiments"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert params.find_project() == tmp_path.resolve()
    assert params.load().seeds == [0, 1]


def test_outside_a_project_the_error_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert params.find_project() == Path(params.__file__).parents[1]  # the one that the package is installed from
    monkeypatch.setattr(params, "__file__", str(tmp_path / "elsewhere" / "ltnb" / "params.py"))
    with pytest.raises(params.ParamsError, match=r"no params\.yaml in"):
        params.load()


def test_settings_are_checked_without_torch() -> None:
    code = "import sys, ltnb.params; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
