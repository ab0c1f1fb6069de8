"""pyproject.toml, requirements.lock, environment.yml and what is installed say the same.

Run as a program it prints the lock that fits what is installed.
"""

import re
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

PROJECT = Path(__file__).parent.parent
LOCK = PROJECT / "requirements.lock"
# What torch needs on Linux only, at versions that torch itself names; setuptools comes with an environment.
NOT_LOCKED = re.compile(r"nvidia-|cuda-|triton$|setuptools$")

pyproject = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
requirements = [Requirement(line) for line in [*pyproject["dependencies"], *pyproject["optional-dependencies"]["dev"]]]


def applies(requirement, extras):
    return requirement.marker is None or any(
        requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""})
    )


def lock_lines():
    """`name==version` of everything that the project's requirements bring here, sorted by name."""
    versions = {}
    seen = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if NOT_LOCKED.match(name) or (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        found = distribution(name)
        versions[name] = found.version
        needed = (Requirement(line) for line in found.requires or [])
        waiting.extend(each for each in needed if applies(each, requirement.extras))
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def test_the_lock_is_what_the_requirements_bring():
    assert LOCK.read_text().splitlines() == lock_lines(), "make lock"


@pytest.mark.parametrize("requirement", requirements, ids=str)
def test_the_lock_satisfies_each_requirement(requirement):
    locked = dict(line.split("==") for line in LOCK.read_text().splitlines())
    assert locked[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_requirements_are_sorted_and_named_once():
    for group in (pyproject["dependencies"], pyproject["optional-dependencies"]["dev"]):
        names = [canonicalize_name(Requirement(line).name) for line in group]
        assert names == sorted(set(names))


def test_conda_installs_the_lock_and_the_project_on_a_python_that_the_project_allows():
    environment = YAML(typ="safe").load(PROJECT / "environment.yml")
    *packages, pip = environment["dependencies"]
    assert pip == {"pip": [f"--requirement {LOCK.name}", "--editable .[dev]"]}
    python = next(package for package in packages if package.startswith("python="))
    assert python.removeprefix("python=") in SpecifierSet(pyproject["requires-python"])


if __name__ == "__main__":
    sys.stdout.write("\n".join(lock_lines()) + "\n")
