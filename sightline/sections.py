"""The configuration's sections about data, and what every section is. `sightline.config` puts them together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Files = Path | Annotated[list[Path], Field(min_length=1)] | None


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, and so are numbers that are none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, values: Any) -> Any:
        """A section whose keys are all commented out is null to YAML."""
        return {} if values is None else values


class CorpusConfig(Section):
    """One of several corpora."""

    name: str | None = Field(None, description="what to call it; null: its file's name")
    source: Files = Field(None, description="source side, one sentence a line; a list for several sources")
    target: Path | None = Field(None, description="target side")
    pairs: Path | None = Field(None, description="or one file of pairs")
    text: Path | None = Field(None, description="lm: a file of text")
    weight: float = Field(1.0, gt=0, description="how often each of its pairs is seen, compared with a weight of 1")


class FiltersConfig(Section):
    """What is left out of the training text, beside pairs with an empty side and pairs that are too long."""

    ratio: float | None = Field(None, ge=1, description="most characters of the longer side for one of the shorter")
    identical: bool = Field(False, description="drop pairs whose sides are the same")
    duplicates: bool = Field(False, description="drop pairs that came before")
    source_script: str | None = Field(None, description="script of the source side, such as Latin or Cyrillic")
    target_script: str | None = Field(None, description="script of the target side")
    script_share: float = Field(0.5, gt=0, le=1, description="least share of a side's letters in its script")


class DataConfig(Section):
    """Where the examples come from and how they are batched."""

    source: Files = Field(
        None, description="source side of the training text, one sentence a line; a list of files for several sources"
    )
    target: Path | None = Field(None, description="target side, line by line the same length")
    pairs: Path | None = Field(
        None, description="or one file of pairs: .tsv, .csv, .jsonl, .parquet or .tmx (text also .gz, .zst)"
    )
    text: Path | None = Field(None, description="lm: text, one sentence or paragraph a line (also .gz, .zst)")
    corpora: list[CorpusConfig] = Field(
        default_factory=list, description="or several: {pairs, or source and target, or text, weight, name} each"
    )
    temperature: float | None = Field(
        None, gt=0, description="several corpora: shares grow with size^(1/temperature) times weight; null is 1"
    )
    alignments: Path | None = Field(
        None, description="word links of all training pairs in their order, Pharaoh lines such as 0-0 1-2 (also .gz)"
    )
    align_with: Literal["eflomal"] | None = Field(
        None, description="or the aligner that makes them when the run begins (extra: eflomal)"
    )
    source_language: str | None = Field(
        None, description="the source's, such as en: of a .tmx file, and to split sentences by"
    )
    target_language: str | None = Field(None, description="which one is the target")
    valid_source: Files = Field(None, description="source side of the validation text")
    valid_target: Path | None = Field(None, description="target side of the validation text")
    valid_pairs: Path | None = Field(None, description="or one file of validation pairs")
    valid_text: Path | None = Field(None, description="lm: validation text")
    held_out: int | None = Field(None, ge=1, description="without validation files: pairs held out; null chooses")
    max_length: int = Field(250, ge=2, description="training pairs with a side of more tokens are dropped, and counted")
    split_tokens: float = Field(
        0.0, ge=0, lt=1, description="subword sampling: share of the training tokens split in two, anew in each batch"
    )
    filters: FiltersConfig = Field(default_factory=FiltersConfig, description=FiltersConfig.__doc__)
    batch_tokens: int | None = Field(None, ge=1, description="tokens a batch on the longer side; null chooses")
    cache: str | None = Field(
        "auto", description="folder for tokenised text; auto: sightline/tokens in the user's cache folder; null: none"
    )
