"""The report: one self-contained page with what a run found and how.

The page is made of Jinja2 templates in `templates/`, with autoescape; styles and script are
inlined, images are data URIs, and a content security policy forbids everything else, so that
hostile text from questions and answers stays text and nothing is fetched.
"""

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headroom import __version__, paths
from headroom.analysis.arithmetic import arithmetic_sheet
from headroom.analysis.audit import sentences
from headroom.analysis.claims import COLUMNS, claims_sheets
from headroom.analysis.findings import findings, pass_at_n_sheet, selector_sentences
from headroom.analysis.gains import OVERALL, accuracy_paths, read_cells
from headroom.analysis.headlines import headlines
from headroom.analysis.placebos import placebo_sheet
from headroom.analysis.prompts import comparison_sheet, read_comparison
from headroom.analysis.selectors import SELECTOR_TABLES, overhead_sentence
from headroom.analysis.sheet import Sheet, read_csv, record, rows_of
from headroom.analysis.text import points, short
from headroom.analysis.verdict import (
    failures_sheet,
    gains_sheet,
    read_controls,
    spread_sheet,
    verdict,
)
from headroom.config import Config
from headroom.figures.drawing import pictures
from headroom.planning.shown import Shown
from headroom.record import Stopwatch, read_record
from headroom.report.browser import browse
from headroom.report.compression import compression_parts
from headroom.report.provenance import costs, provenance
from headroom.sprint.evaluation import PAIRED
from headroom.tables import CURVES, read_table, write_text

_PAGE = Path(__file__).with_name("templates")


def render(config: Config) -> str:
    """Return the report of a run as HTML.

    Raises:
        TableError: a table that it shows is missing or damaged.
    """
    environment = Environment(
        loader=FileSystemLoader(_PAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "points": points,
        "group": lambda group: short(group, 24),  # as `gains_sheet` writes it
    }
    script = (_PAGE / "report.js").read_text(encoding="utf-8")
    sweeps = [_sweep(config, sweep) for sweep in config.sweeps]
    compressions, tables = compression_parts(config)
    groups = [group for sweep in sweeps for group, _ in sweep["columns"] if group != OVERALL]
    layers = {row["layer"] for sweep in sweeps for row in sweep["rows"] if row["layer"] is not None}
    return environment.get_template("report.html").render(
        run=config.run,
        version=__version__,
        style=Markup((_PAGE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        models=list(config.models),
        pictures=pictures("run", "figures", run=config.run),
        browsers=[(sweep, browse(config, sweep)) for sweep in config.sweeps],
        sections=_sections(config),
        groups=list(dict.fromkeys(groups)),
        layers=sorted(layers),
        sweeps=sweeps,
        audit=_audit(config),
        selectors=[_selector(config, each) for each in config.selectors],
        compressions=compressions,
        compression_tables=tables,
        comparisons=[_comparison(config, each) for each in config.comparisons],
        made=provenance(config),
        costs=costs(config),
        settings=json.dumps(config.model_dump(mode="json"), indent=2, ensure_ascii=False),
    )


def _sections(config: Config) -> dict[str, str]:
    """Return the titles of the sections that the run has something for, by their templates."""
    either = bool(config.sweeps or config.selectors)
    wanted = {
        "findings": ("Findings", True),
        "controls": ("Is the gain real?", config.sweeps),
        "embedding": ("Does the embedding matter?", config.selectors),
        "compression": ("Compression", config.compressions),
        "cost": ("Diversity and cost", either),
        "published": ("Published", True),
        "figures": ("Figures", either),
        "tables": ("Tables", either),
        "prompts": ("Prompts", config.comparisons),
        "answers": ("Answers", config.sweeps),
        "making": ("How it was made", True),
    }
    return {section: title for section, (title, content) in wanted.items() if content}


def _sweep(config: Config, sweep: str) -> dict[str, Any]:
    """Return what the page shows of a sweep."""
    cells = read_cells(config, sweep)
    section = config.sweeps[sweep]
    groups = cells.drop_duplicates(["by", "group"])
    names = {"run": config.run, "sweep": sweep}
    gains, heads, spread, failed, changed = (
        read_controls(config, sweep, table)
        for table in ("gains", "heads", "spread", "failures", "placebos")
    )
    placebos = placebo_sheet(changed, sweep, config.models[section.model].dtype)
    return {
        "name": sweep,
        "model": section.model,
        "questions": section.questions,
        "findings": findings(cells),
        "columns": list(zip(groups["group"], groups["n"], strict=True)),
        "rows": [
            {
                "variant": variant,
                "layer": None if pd.isna(layer := part["layer"].iloc[0]) else int(layer),
                "cells": [
                    (a, g, _shade(g)) for a, g in zip(part["accuracy"], part["gain"], strict=True)
                ],
            }
            for variant, part in cells.groupby("variant", sort=False)
        ],
        "pictures": {of: pictures("sweep", of, **names) for of in ("figures", "controls", "cost")},
        "of_layers": [
            (layer, pictures("layer", "figures", **names, layer=f"{layer:02d}"))
            for layer in Shown(config).layers(sweep)
        ],
        "verdict": verdict(gains, heads, spread),
        "controls": {
            "the best head of each layer, beside chance and held out": gains_sheet(gains, sweep),
            "how much of the spread between heads is noise": spread_sheet(spread),
            "what placebos change": placebos,
            "how the heads that hurt fail": failures_sheet(failed),
        },
    }


def _audit(config: Config) -> dict[str, Any]:
    """Return what the page shows of the published tables."""
    names = {"run": config.run, "suffix": "csv"}
    summary, cuts = (
        read_csv(Path(paths.AUDIT_TABLE.format(**names, paper=paper)), ["model"])
        for paper in ("sprint", "compression")
    )
    claims = Path(paths.CLAIMS.format(**names))
    return {
        "sentences": sentences(summary),
        "cuts": arithmetic_sheet(cuts),
        "claims": claims_sheets(read_csv(claims, COLUMNS), config.run) if claims.exists() else {},
        "pictures": pictures("run", "published", run=config.run),
    }


def _selector(config: Config, selector: str) -> dict[str, Any]:
    """Return what the page shows of a selector."""
    names = {"run": config.run, "selector": selector}
    table = read_table(Path(paths.CURVES.format(**names)), CURVES)
    paired = read_csv(Path(paths.PAIRED.format(**names)), PAIRED)
    embedding, diversity, choosing = (
        sheet(read_csv(Path(template.format(**names, suffix="csv")), columns), selector)
        for template, columns, sheet in SELECTOR_TABLES
    )
    section = config.selectors[selector]
    measured = Path(paths.DIVERSITY.format(**names, suffix="csv"))
    return {
        "name": selector,
        "model": section.model,
        "train": section.train,
        "test": section.test,
        "sentences": [*selector_sentences(table, paired), choosing.lead],
        "pictures": {of: pictures("selector", of, **names) for of in ("figures", "embedding")},
        "pass_at_n": pass_at_n_sheet(table),
        "embedding": embedding,
        "diversity": replace(diversity, lead=overhead_sentence(read_record(measured))),
        "choosing": choosing,
        "trials": {
            title: _trials(read_csv(Path(template.format(**names)), []))
            for title, template in _TRIALS.items()
        },
    }


_TRIALS = {
    "How the settings were chosen": paths.CHOICE,
    "Pass@N on the test questions by reading of the loss and λ (nothing is chosen here)": (
        paths.ABLATION
    ),
    "How random heads depends on its shortlist": paths.SENSITIVITY,
}


def _trials(table: pd.DataFrame) -> Sheet:
    """Return a table as it is, but texts stand left of numbers."""
    texts = list(table.select_dtypes(exclude="number"))
    table = table[[*texts, *table.columns.difference(texts, sort=False)]]
    rows = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in rows_of(table)]
    return Sheet(list(map(str, table)), rows, "", texts=len(texts))


def _comparison(config: Config, comparison: str) -> dict[str, Any]:
    """Return what the page shows of a comparison of prompts."""
    names = {"run": config.run, "comparison": comparison, "suffix": "csv"}
    section = config.comparisons[comparison]
    return {
        "name": comparison,
        "model": section.model,
        "questions": section.questions,
        "sheet": comparison_sheet(
            read_comparison(Path(paths.COMPARISON.format(**names))), comparison
        ),
    }


def _shade(gain: float) -> str:
    """Return the CSS class of a gain: steps of 2 percentage points, at most 4."""
    step = max(-4, min(4, round(50 * gain)))
    return f"up{step}" if step > 0 else f"down{-step}" if step < 0 else "even"


def write_report(config: Config) -> None:
    """Write the report of a run, and what the run prints of it."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    said = Path(paths.FINDINGS.format(run=config.run))
    write_text(said, "".join(f"{sentence}\n" for sentence in headlines(config)))
    record([said, output], stopwatch, accuracy_paths(config))
