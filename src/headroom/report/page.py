"""The report: one self-contained page with what a run found and how.

The page is made of Jinja2 templates in `templates/`, with autoescape; styles and script are
inlined, images are data URIs, and a content security policy forbids everything else, so that
hostile text from questions and answers stays text and nothing is fetched.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headroom import __version__, paths
from headroom.analysis.arithmetic import arithmetic_sheet
from headroom.analysis.audit import sentences
from headroom.analysis.claims import COLUMNS, claims_sheets
from headroom.analysis.findings import Finding, PassAtN, findings, pass_at_n
from headroom.analysis.gains import OVERALL, accuracy_paths, read_cells
from headroom.analysis.headlines import headlines
from headroom.analysis.placebos import PLACEBOS, placebo_sheet
from headroom.analysis.prompts import comparison_sheet, read_comparison
from headroom.analysis.selectors import SELECTOR_TABLES, overhead_sentence
from headroom.analysis.sheet import Sheet, read_csv, record
from headroom.analysis.text import percent, plain, points
from headroom.analysis.verdict import (
    FAILURES,
    GAINS_CAPTION,
    read_gains,
    read_heads,
    read_spread,
    verdict,
)
from headroom.config import Config
from headroom.figures.drawing import Picture, read_picture
from headroom.planning.batches import pool
from headroom.record import Stopwatch, read_record
from headroom.report.browser import browse
from headroom.report.compression import compression_parts
from headroom.report.provenance import Provenance, provenance
from headroom.sprint.evaluation import PAIRED
from headroom.tables import CURVES, read_table, write_text

_PAGE = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class SweepPart:
    """What the page shows of one sweep."""

    name: str
    model: str
    questions: str
    findings: list[Finding]
    columns: list[tuple[str, int]]  # group and its n
    rows: list[dict[str, Any]]
    pictures: list[Picture]  # of all heads
    heatmaps: list[tuple[int, Picture]]  # by layer
    cost: Picture | None


@dataclass(frozen=True)
class ControlsPart:
    """What the page shows of a sweep's controls."""

    name: str
    model: str
    verdict: list[str]
    gains: list[dict[str, Any]]
    spread: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    placebos: Sheet
    forest: Picture | None
    components: Picture | None


@dataclass(frozen=True)
class AuditPart:
    """What the page shows of the published tables."""

    sentences: list[str]
    cuts: Sheet
    claims: dict[str, Sheet]
    picture: Picture | None


@dataclass(frozen=True)
class SelectorPart:
    """What the page shows of one selector."""

    name: str
    model: str
    train: str
    test: str
    pass_at_n: PassAtN
    picture: Picture | None
    space: Picture | None
    embedding: Sheet
    diversity: Sheet
    choosing: Sheet
    trials: list[tuple[str, dict[str, list[Any]]]]  # title, table


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
        "percent": percent,
        "points": points,
        "duration": _duration,
        "plain": plain,
    }
    script = (_PAGE / "report.js").read_text(encoding="utf-8")
    made: Provenance = provenance(config)
    sweeps = [_sweep(config, name) for name in config.sweeps]
    compressions, tables = compression_parts(config)
    groups = [group for sweep in sweeps for group, _ in sweep.columns if group != OVERALL]
    layers = {row["layer"] for sweep in sweeps for row in sweep.rows if row["layer"] is not None}
    return environment.get_template("report.html").render(
        run=config.run,
        version=__version__,
        style=Markup((_PAGE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        models=list(config.models),
        pictures=_drawn((paths.VIOLINS, paths.LEVELS), run=config.run),
        browsers=[(name, browse(config, name)) for name in config.sweeps],
        sections=_sections(config),
        groups=list(dict.fromkeys(groups)),
        layers=sorted(layers),
        sweeps=sweeps,
        controls=[_controls(config, name) for name in config.sweeps],
        gains_caption=GAINS_CAPTION,
        failure_columns=FAILURES,
        audit=_audit(config),
        selectors=[_selector(config, name) for name in config.selectors],
        compressions=compressions,
        compression_tables=tables,
        comparisons=[_comparison(config, name) for name in config.comparisons],
        made=made,
        settings=json.dumps(config.model_dump(mode="json"), indent=2, ensure_ascii=False),
    )


def _sections(config: Config) -> list[str]:
    """Return the templates of the sections that the run has something for."""
    wanted = {
        "findings": True,
        "controls": config.sweeps,
        "embedding": config.selectors,
        "compression": config.compressions,
        "cost": config.sweeps or config.selectors,
        "published": True,
        "figures": config.sweeps or config.selectors,
        "tables": config.sweeps or config.selectors,
        "prompts": config.comparisons,
        "answers": config.sweeps,
        "making": True,
    }
    return [section for section, content in wanted.items() if content]


def _sweep(config: Config, name: str) -> SweepPart:
    cells = read_cells(config, name)
    section = config.sweeps[name]
    groups = cells.drop_duplicates(["by", "group"])
    columns = list(zip(groups["group"].tolist(), groups["n"].tolist(), strict=True))
    rows = []
    for variant, part in cells.groupby("variant", sort=False):
        layer = part["layer"].iloc[0]
        accuracy, gain = part["accuracy"].tolist(), part["gain"].tolist()
        rows.append(
            {
                "variant": variant,
                "layer": None if pd.isna(layer) else int(layer),
                "cells": [(a, g, _shade(g)) for a, g in zip(accuracy, gain, strict=True)],
            }
        )
    layers = sorted({v.layer for v in pool(config, section) if v.layer is not None})
    heatmaps = [
        (layer, picture)
        for layer in layers
        if (
            picture := read_picture(paths.HEATMAP, run=config.run, sweep=name, layer=f"{layer:02d}")
        )
    ]
    return SweepPart(
        name=name,
        model=section.model,
        questions=section.questions,
        findings=findings(cells),
        columns=columns,
        rows=rows,
        pictures=_drawn((paths.AGREEMENT,), run=config.run, sweep=name),
        heatmaps=heatmaps,
        cost=read_picture(paths.COST, run=config.run, sweep=name),
    )


def _controls(config: Config, name: str) -> ControlsPart:
    names = {"run": config.run, "sweep": name, "suffix": "csv"}
    files = {
        table: Path(paths.CONTROLS.format(**names, table=table))
        for table in ("gains", "heads", "spread", "failures", "placebos")
    }
    gains, heads = read_gains(files["gains"]), read_heads(files["heads"])
    spread = read_spread(files["spread"])
    failures = read_csv(files["failures"], list(FAILURES))
    placebos = read_csv(files["placebos"], PLACEBOS)
    section = config.sweeps[name]
    return ControlsPart(
        name=name,
        model=section.model,
        verdict=verdict(gains, heads, spread),
        gains=_rows(gains),
        spread=_rows(spread),
        failures=_rows(failures),
        placebos=placebo_sheet(placebos, name, config.models[section.model].dtype),
        forest=read_picture(paths.FOREST, run=config.run, sweep=name),
        components=read_picture(paths.COMPONENTS, run=config.run, sweep=name),
    )


def _audit(config: Config) -> AuditPart:
    names = {"run": config.run, "suffix": "csv"}
    summary = read_csv(Path(paths.AUDIT_TABLE.format(**names, paper="sprint")), ["model"])
    cuts = read_csv(Path(paths.AUDIT_TABLE.format(**names, paper="compression")), ["model"])
    claims = Path(paths.CLAIMS.format(**names))
    return AuditPart(
        sentences=sentences(summary),
        cuts=arithmetic_sheet(cuts),
        claims=claims_sheets(read_csv(claims, COLUMNS), config.run) if claims.exists() else {},
        picture=read_picture(paths.AUDIT, run=config.run),
    )


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table's rows; what is missing is None."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _selector(config: Config, name: str) -> SelectorPart:
    names = {"run": config.run, "selector": name}
    table = read_table(Path(paths.CURVES.format(**names)), CURVES)
    paired = read_csv(Path(paths.PAIRED.format(**names)), PAIRED)
    files = (
        (f"How the settings of {name} were chosen", Path(paths.CHOICE.format(**names))),
        (
            "Pass@N on the test questions by reading of the loss and λ (nothing is chosen here)",
            Path(paths.ABLATION.format(**names)),
        ),
        ("How random heads depends on its shortlist", Path(paths.SENSITIVITY.format(**names))),
    )
    embedding, diversity, choosing = (
        sheet(read_csv(Path(template.format(**names, suffix="csv")), columns), name)
        for template, columns, sheet in SELECTOR_TABLES
    )
    section = config.selectors[name]
    measured = Path(paths.DIVERSITY.format(**names, suffix="csv"))
    return SelectorPart(
        name=name,
        model=section.model,
        train=section.train,
        test=section.test,
        pass_at_n=pass_at_n(table, paired),
        picture=read_picture(paths.PASS_AT_N, **names),
        space=read_picture(paths.SPACE, **names),
        embedding=embedding,
        diversity=replace(diversity, lead=overhead_sentence(read_record(measured))),
        choosing=choosing,
        trials=[(title, dict(read_csv(file, []).to_dict("split"))) for title, file in files],
    )


def _comparison(config: Config, name: str) -> dict[str, Any]:
    file = Path(paths.COMPARISON.format(run=config.run, comparison=name, suffix="csv"))
    section = config.comparisons[name]
    return {
        "name": name,
        "model": section.model,
        "questions": section.questions,
        "sheet": comparison_sheet(read_comparison(file), name),
    }


def _drawn(templates: Sequence[str], **names: Any) -> list[Picture]:
    """Return those of some figures that were drawn."""
    found = (read_picture(template, **names) for template in templates)
    return [picture for picture in found if picture]


def _shade(gain: float) -> str:
    """Return the CSS class of a gain: steps of 2 percentage points, at most 4."""
    step = max(-4, min(4, round(50 * gain)))
    return f"up{step}" if step > 0 else f"down{-step}" if step < 0 else "even"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def write_report(config: Config) -> None:
    """Write the report of a run, and what the run prints of it."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    said = Path(paths.FINDINGS.format(run=config.run))
    write_text(said, "".join(f"{sentence}\n" for sentence in headlines(config)))
    record([said, output], stopwatch, accuracy_paths(config))
