"""The ledger: what notebooks record, how it is put together, and that nothing holds without evidence."""

import csv
from pathlib import Path
from typing import Any

import pytest

from ltnb.claims import Claim, ClaimsError, Evidence, ledger, load, main, read_evidence

CLAIM = """\
bcl-theorem-3:
  paper: bcl
  number: Theorem 3
  statement: The simplex minimises the loss.
  assumptions: any class counts
  kinds: [derived, optimised]
  where: theory/03_balanced_contrastive.ipynb
bcl-theorem-2:
  paper: bcl
  number: Theorem 2
  statement: A bound.
  assumptions: none
  kinds: [derived]
  where: theory/03_balanced_contrastive.ipynb
"""


@pytest.fixture
def claims(tmp_path: Path) -> dict[str, Claim]:
    (tmp_path / "claims.yaml").write_text(CLAIM, encoding="utf-8")
    return load(tmp_path / "claims.yaml")


def test_a_claim_without_evidence_is_not_yet_checked(claims: dict[str, Claim]) -> None:
    entries = ledger(claims, [])
    assert [entry.verdict for entry in entries] == ["not yet checked"] * 2
    assert entries[0].outstanding == ["derived", "optimised"]


def test_findings_of_several_notebooks_meet(claims: dict[str, Claim], tmp_path: Path) -> None:
    theory, free = Evidence("theory/03"), Evidence("experiments/free")
    theory.record("bcl-theorem-3", "fails", kind="derived", detail="at 10, 5, 5, 5")
    free.record("bcl-theorem-3", "fails", kind="optimised", detail="14.46 < 14.57")
    theory.write(tmp_path / "evidence" / "theory" / "03.json")
    free.write(tmp_path / "evidence" / "free.json")
    entries = ledger(claims, read_evidence(tmp_path / "evidence"))
    assert (entries[0].verdict, entries[0].outstanding) == ("fails", [])
    assert entries[1].verdict == "not yet checked"
    main(str(tmp_path / "claims.yaml"), str(tmp_path / "evidence"), str(tmp_path / "ledger.csv"))
    with (tmp_path / "ledger.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["verdict"] for row in rows] == ["fails", "not yet checked"]
    assert rows[0]["detail"] in ("at 10, 5, 5, 5 14.46 < 14.57", "14.46 < 14.57 at 10, 5, 5, 5")


def test_findings_that_disagree_are_an_error_that_names_both(claims: dict[str, Claim]) -> None:
    one, other = Evidence("one"), Evidence("other")
    one.record("bcl-theorem-2", "holds", kind="derived")
    other.record("bcl-theorem-2", "fails", kind="numerical", detail="x")
    with pytest.raises(ClaimsError, match="bcl-theorem-2: the findings disagree: one says 'holds'; other says 'fails'"):
        ledger(claims, [one, other])


def test_a_finding_about_no_listed_claim(claims: dict[str, Claim]) -> None:
    evidence = Evidence("theory/03")
    evidence.record("bcl-theorem-4", "holds", kind="derived")
    with pytest.raises(ClaimsError, match="theory/03: 'bcl-theorem-4' is not in claims"):
        ledger(claims, [evidence])


@pytest.mark.parametrize(
    ("verdict", "kind", "detail", "told"),
    [
        ("hold", "derived", "", "verdict 'hold'; expected one of holds"),
        ("holds", "proved", "", "kind 'proved'; expected one of derived"),
        ("fails", "derived", "", "'fails' without detail"),
    ],
)
def test_a_wrong_finding_is_refused(verdict: Any, kind: Any, detail: str, told: str) -> None:
    with pytest.raises(ClaimsError, match=told):
        Evidence("n").record("c", verdict, kind=kind, detail=detail)


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("paper: bcl", "paper: blc", r"bcl-theorem-3\.paper: 'blc'"),
        ("[derived, optimised]", "[]", r"bcl-theorem-3\.kinds: \[\]"),
        ("number: Theorem 3", "nummer: 3", r"bcl-theorem-3\.nummer"),
        ("  paper: bcl", " : :", "is not valid YAML"),
    ],
)
def test_a_wrong_claim_is_told(tmp_path: Path, good: str, bad: str, told: str) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIM.replace(good, bad, 1), encoding="utf-8")
    with pytest.raises(ClaimsError, match=told):
        load(file)
