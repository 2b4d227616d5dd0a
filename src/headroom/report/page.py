"""The report: one self-contained page that answers questions, and what a run prints at its end.

Made of one template with autoescape; style and script are inlined, images are data URIs, and a
content security policy forbids everything else, so that hostile text stays text and nothing is
fetched.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headroom import __version__, paths
from headroom.analysis.gains import accuracy_paths
from headroom.analysis.sheet import record
from headroom.analysis.text import plain
from headroom.analysis.verdicts import title, verdicts
from headroom.config import Config
from headroom.record import Stopwatch
from headroom.report import others, sections
from headroom.report.blocks import Images, Picture, Section
from headroom.report.explorer import explored, rows_of_map, script
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
    images = Images(config.run)
    as_printed = {**sections.printed(config, images), **others.printed(config)}
    shown = _sections(config, images)
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
        maps=[(sweep, rows_of_map(sweep)) for sweep in sweeps],
        sections=shown,
        as_printed=as_printed,
        data=script(sweeps) if sweeps else None,
    )


def _sections(config: Config, images: Images) -> list[Section]:
    """Return the questions that the run has something for."""
    wanted = [
        (sections.heads, config.sweeps),
        (sections.luck, config.sweeps),
        (sections.sampling, config.selectors),
        (sections.question, config.selectors),
        (others.compression, config.compressions),
        (others.published, True),
        (others.trust, True),
    ]
    return [make(config, images) for make, content in wanted if content]


def _hero(config: Config, shown: list[Section]) -> dict[str, Any]:
    """Return the figure of the first screen: Pass@N, else the map, else compressions."""
    if config.selectors:
        curves = [
            (title(config, each.test), sections.curves(config, name))
            for name, each in config.selectors.items()
        ]
        return {"kind": "curves", "curves": curves}
    if config.sweeps:
        return {"kind": "map"}
    blocks = next((each.blocks for each in shown if each.anchor == "compression"), [])
    pictures = [each for each in blocks if isinstance(each, Picture)]
    return {"kind": "picture", "pictures": pictures}


def _about(config: Config) -> list[str]:
    """Return what the run is about, in a few words each."""
    models = [f"{plain(name)}, {_size(each.billions)}" for name, each in config.models.items()]
    tests = {each.questions for each in config.sweeps.values()}
    tests |= {each.test for each in config.selectors.values()}
    counted = [f"{config.questions[name].n or 'all'} {title(config, name)}" for name in sorted(tests, key=list(config.questions).index)]
    questions = [f"{' + '.join(counted)} test questions"] if counted else []
    return [config.run, *models[:4], *questions]


def _size(billions: float) -> str:
    return f"{billions:g}B parameters" if billions >= 0.1 else f"{1000 * billions:g}M parameters"


def write_report(config: Config) -> None:
    """Write the report of a run, and what the run prints of it."""
    stopwatch = Stopwatch()
    output = Path(paths.REPORT.format(run=config.run))
    write_text(output, render(config))
    said = Path(paths.FINDINGS.format(run=config.run))
    write_text(said, "".join(f"{verdict}\n" for verdict in verdicts(config)))
    record([said, output], stopwatch, accuracy_paths(config))
