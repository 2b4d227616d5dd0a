"""Settings of labelled texts: what encoders learn beside word problems."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headroom.config.section import Count, Section, Seed

Task = Literal["classification", "question_answering"]

_COLUMNS: dict[str, dict[str, Any]] = {
    "classification": {"text": ("sentence",), "answer": "label"},
    "question_answering": {"text": ("context", "question"), "answer": "answers", "id": "id"},
}


class TextColumns(Section):
    """Which columns hold what."""

    text: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]
    """One column or two that are read together; question answering: context, then question."""
    answer: str
    """Label; question answering: an object with the lists `text` and `answer_start`."""
    id: str | None = None
    """Unlike for every row of a part; by default the number of the row."""


class Splits(Section):
    """Names of the parts."""

    train: str = "train"
    """Training part."""
    dev: str | None = None
    """Development part; null: a tenth of the training part, no text of which is in the rest."""
    test: str = "validation"
    """What is tested; the labels of GLUE's and SQuAD's own test parts are secret."""


class Texts(Section):
    """A dataset of labelled texts, as GLUE's and SQuAD's."""

    task: Task
    """classification: which label a text, or a pair of texts, has; judged by accuracy.
    question_answering: which words of a context answer a question; judged by exact match, and
    leniently by F1 from 0.5."""
    dataset: str | None = None
    """Hub id, or `generated`."""
    subset: str | None = None
    """Hub: name of the dataset's config, where it has several."""
    revision: str | None = None
    """Hub: commit hash. Files: sha256 of them all, filled in when absent."""
    files: dict[Literal["train", "dev", "test"], str] | None = None
    """Local .jsonl or .csv files (or .gz of them) of the parts, instead of a dataset."""
    columns: TextColumns
    """Names of the columns; by default those of SST-2 and of SQuAD."""
    splits: Splits = Splits()
    """Hub: names of the parts."""
    n: Count | None = None
    """Texts to generate."""
    seed: Seed = 0
    """Seed of generated texts, and of the draw of a development part."""

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("columns", {}), dict):
            own = values.get("columns", {})
            return {**values, "columns": {**_COLUMNS.get(values.get("task", ""), {}), **own}}
        return values

    @model_validator(mode="after")
    def _possible(self) -> "Texts":
        if (self.dataset is None) == (self.files is None):
            raise ValueError("give either `dataset` (hub id or generated) or `files`")
        if (self.dataset == "generated") != (self.n is not None):
            raise ValueError("generated texts take `n`, and only these do")
        if self.dataset in (None, "generated") and self.subset:
            raise ValueError("`subset` belongs to a `dataset` on the hub")
        if self.dataset == "generated" and self.revision:
            raise ValueError("generated texts take no `revision`")
        if self.dataset not in (None, "generated") and self.revision is None:
            raise ValueError(f"{self.dataset} from the hub: give its `revision`, or `files`")
        if self.files is not None and not {"train", "test"} <= self.files.keys():
            raise ValueError("files: name those of train and test; dev may be left out")
        if self.task == "question_answering" and len(self.columns.text) != 2:
            raise ValueError("columns.text: name the columns of context and question")
        return self
