"""The ledger of claims: what the four papers say, and what the notebooks found when they checked it.

``claims.yaml`` states every claim and its assumptions. A notebook records evidence while it runs and writes it at its
end; the ledger puts the two together. A claim without evidence is *not yet checked*, whatever anybody thinks of it.

    python -m ltnb.claims claims.yaml evidence results/claims/ledger.csv
"""

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ltnb.files import replacing

FILE_NAME = "claims.yaml"
NOT_CHECKED = "not yet checked"
COLUMNS = (
    "id", "paper", "number", "statement", "assumptions", "verdict", "detail", "evidence", "outstanding", "where",
)  # fmt: skip

Kind = Literal["derived", "numerical", "optimised", "trained", "reproduced"]
Verdict = Literal["holds", "holds with a correction", "holds only under", "fails", "not reproduced"]


class ClaimsError(ValueError):
    """Something in the ledger is wrong; the message names the file or notebook, the claim and the value."""


class Claim(BaseModel):
    """A statement of a paper that can be checked."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    paper: Literal["bcl", "featrecon", "bce3s", "pal", "ltnb"]  # ltnb: a result of this project
    number: str  # "Theorem 3", "Eq. 7", "text": the paper's own number
    statement: str  # in our own words; formulas between dollar signs
    assumptions: str
    kinds: Annotated[list[Kind], Field(min_length=1)]  # the kinds of evidence that would settle it
    where: str  # the notebook that checks it, below notebooks/


@dataclass(frozen=True)
class Finding:
    """What one check found about one claim."""

    claim: str
    kind: Kind
    verdict: Verdict
    detail: str  # the correction, the condition or the counter-example; what was computed, in a sentence


@dataclass
class Evidence:
    """What a notebook found, in the order in which it found it."""

    notebook: str
    findings: list[Finding] = field(default_factory=list)

    def record(self, claim: str, verdict: Verdict, *, kind: Kind, detail: str = "") -> None:
        """Add a finding; call it after the check has passed, in the cell that makes it.

        Raises:
            ClaimsError: an unknown verdict or kind, or one that needs a detail (which correction, condition,
                counter-example) and has none.
        """
        for name, value, known in (("verdict", verdict, get_args(Verdict)), ("kind", kind, get_args(Kind))):
            if value not in known:
                raise ClaimsError(f"{self.notebook}: {claim}: {name} {value!r}; expected one of {', '.join(known)}")
        if verdict != "holds" and not detail:
            raise ClaimsError(f"{self.notebook}: {claim}: {verdict!r} without detail; expected what or why")
        self.findings.append(Finding(claim, kind, verdict, detail))

    def write(self, file: Path) -> None:
        """Write the findings as JSON, whole or not at all."""
        content = {"notebook": self.notebook, "findings": [asdict(finding) for finding in self.findings]}
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Entry:
    """A line of the ledger: a claim and what is known about it."""

    id: str
    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """The verdict that all findings share, or ``not yet checked``."""
        return self.findings[0].verdict if self.findings else NOT_CHECKED

    @property
    def outstanding(self) -> list[Kind]:
        """The kinds of evidence that are still missing."""
        found = {finding.kind for finding in self.findings}
        return [kind for kind in self.claim.kinds if kind not in found]


def load(file: Path) -> dict[str, Claim]:
    """Read and check ``claims.yaml``.

    Raises:
        ClaimsError: the file is not YAML, or a claim misses a key, has an unknown one or a wrong value.
    """
    try:
        content = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ClaimsError(f"{file}: is not valid YAML: {error}") from None
    try:
        return TypeAdapter(dict[str, Claim]).validate_python(content)
    except ValidationError as error:
        faults = [
            f"{file}: {'.'.join(map(str, details['loc']))}: {details['input']!r}: {details['msg']}"
            for details in error.errors(include_url=False)
        ]
        raise ClaimsError("\n".join(faults)) from None


def read_evidence(folder: Path) -> list[Evidence]:
    """Read what every notebook below ``folder`` found."""
    evidence = []
    for file in sorted(folder.rglob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        evidence.append(Evidence(content["notebook"], [Finding(**finding) for finding in content["findings"]]))
    return evidence


def ledger(claims: Mapping[str, Claim], evidence: Iterable[Evidence]) -> list[Entry]:
    """Put claims and findings together, in the order of ``claims.yaml``.

    Raises:
        ClaimsError: a finding about a claim that is not listed, or two findings about one claim that disagree.
    """
    found: dict[str, list[tuple[str, Finding]]] = {name: [] for name in claims}
    for source in evidence:
        for finding in source.findings:
            if finding.claim not in found:
                raise ClaimsError(f"{source.notebook}: {finding.claim!r} is not in {FILE_NAME}")
            found[finding.claim].append((source.notebook, finding))
    for name, findings in found.items():
        verdicts = {finding.verdict: notebook for notebook, finding in findings}
        if len(verdicts) > 1:
            said = "; ".join(f"{notebook} says {verdict!r}" for verdict, notebook in verdicts.items())
            raise ClaimsError(f"{name}: the findings disagree: {said}")
    return [Entry(name, claim, tuple(finding for _, finding in found[name])) for name, claim in claims.items()]


def main(claims: str, evidence: str, output: str) -> None:
    """Write the ledger as a table: a line a claim."""
    entries = ledger(load(Path(claims)), read_evidence(Path(evidence)))
    with replacing(Path(output)) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(COLUMNS)
        for entry in entries:
            claim = entry.claim
            evidence_found = list(dict.fromkeys(finding.kind for finding in entry.findings))
            details = list(dict.fromkeys(finding.detail for finding in entry.findings if finding.detail))
            table.writerow(
                [
                    entry.id, claim.paper, claim.number, claim.statement, claim.assumptions, entry.verdict,
                    " ".join(details), ", ".join(evidence_found), ", ".join(entry.outstanding), claim.where,
                ]
            )  # fmt: skip


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ClaimsError as error:
        sys.exit(str(error))
