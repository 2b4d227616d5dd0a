"""The report, one self-contained page that answers questions, and the findings a run prints.

It is rendered from one template with autoescape. Style and script are inlined, images are data
URIs, and a content security policy forbids everything else, so that hostile text remains text and
nothing is fetched.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headroom import __version__, paths
from headroom.analysis.files import record
from headroom.analysis.gains import accuracy_paths
from headroom.analysis.verdicts import title, verdicts
from headroom.config import Config
from headroom.record import Stopwatch
from headroom.report.blocks import Images, Section
from headroom.report.explorer import colour, explored, label, script
from headroom.report.sections import curves, sections
from headroom.report.tables import as_printed
from headroom.tables import write_text

_ASSETS = Path(__file__).with_name("assets")


def render(config: Config) -> str:
    """Return the report of a run as HTML.

    Raises:
        TableError: a table that it shows is missing or damaged.
    """
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    code = (_ASSETS / "page.js").read_text(encoding="utf-8")
    images = Images()
    shown = sections(config, images)
    sweeps = explored(config)
    return environment.get_template("page.html").render(
        run=config.run,
        version=__version__,
        style=Markup((_ASSETS / "page.css").read_text(encoding="utf-8")),
        script=Markup(code),
        script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        about=_about(config),
        verdicts=verdicts(config),
        hero=_hero(config, shown),
        sweeps=sweeps,
        colour=colour,
        label=label,
        sections=shown,
        as_printed=as_printed(config, images),
        data=script(sweeps) if sweeps else None,
    )


def _hero(config: Config, shown: list[Section]) -> dict[str, Any]:
    """Return the first screen's figure: Pass@N, else the map, else a compression's or published."""
    drawn = [(title(config, "selectors", name), curves(config, name)) for name in config.selectors]
    if drawn or config.sweeps:
        return {"kind": "curves" if drawn else "map", "curves": drawn}
    section = next(each for each in shown if each.anchor in ("compression", "published"))
    first, section.blocks = section.blocks[:1], section.blocks[1:]
    return {"kind": "blocks", "blocks": first, "curves": []}


def _about(config: Config) -> list[str]:
    """Return the run's name, models and questions as short phrases."""
    models = [
        f"{title(config, 'models', name)}, {_size(each.billions)}"
        for name, each in config.models.items()
    ]
    tests = {each.questions for each in config.sweeps.values()}
    tests |= {each.test for each in config.selectors.values()}
    counted = [
        f"{config.questions[name].n or 'all'} {title(config, 'questions', name)}"
        for name in sorted(tests, key=list(config.questions).index)
    ]
    questions = [f"{' + '.join(counted)} test questions"] if counted else []
    return [config.run, *models[:4], *questions]


def _size(billions: float) -> str:
    return f"{billions:g}B parameters" if billions >= 0.1 else f"{1000 * billions:g}M parameters"


def write_report(config: Config) -> None:
    """Write the report of a run, and the findings that the run prints."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    findings = Path(paths.FINDINGS.format(run=config.run))
    write_text(findings, "".join(f"{verdict}\n" for verdict in verdicts(config)))
    record([findings, output], stopwatch, accuracy_paths(config))
