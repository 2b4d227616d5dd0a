"""The report, one self-contained page that answers questions, and the findings a run prints.

It is rendered from one template with autoescape. Style and script are inlined, images are data
URIs, and a content security policy forbids everything else, so that hostile text remains text and
nothing is fetched.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headsweep import __version__
from headsweep.config.titles import title, titles
from headsweep.errors import ConfigError
from headsweep.files import paths
from headsweep.files.record import Stopwatch, read_record
from headsweep.files.safe_files import write_text
from headsweep.files.tables import GRADED
from headsweep.page import explorer, head_grid
from headsweep.page.blocks import Block, Picture, as_printed, bounded
from headsweep.page.sections import first_figure, sections
from headsweep.results.exhibits import RunFiles
from headsweep.results.facts import record
from headsweep.results.verdicts import ReportVerdict, verdicts
from headsweep.store.batches import batches
from headsweep.store.layout import Store
from headsweep.text import parameters

_ASSETS = Path(__file__).with_name("assets")


def _page(**values: Any) -> str:
    """Return the page of what its template shows, with its style and its script."""
    templates = Environment(
        loader=FileSystemLoader(_ASSETS),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["sha256"] = _sha256
    style, script = (
        Markup((_ASSETS / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js")
    )
    return templates.get_template("page.html").render(style=style, script=script, **values)


def _sha256(text: str) -> str:
    """Return a text's digest as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_report(store: Store) -> None:
    """Write the report of a run, and the findings that the run prints.

    Raises:
        TableError: a table that it shows is missing or damaged.
    """
    stopwatch = Stopwatch()
    findings = verdicts(store)
    page = _rendered(store, store, findings)
    page_file, findings_file = store.path(paths.REPORT), store.path(paths.FINDINGS)
    write_text(page_file, page)
    write_text(findings_file, "".join(f"{finding}\n" for finding in findings))
    record([findings_file, page_file], stopwatch, RunFiles(store).judged())


@dataclass(frozen=True)
class SoFar:
    """What the page of a run that is not finished says on top."""

    lead: Sequence[str]
    """Sentences: what is there, and what is missing."""
    blocks: Sequence[Block]
    """What is known of the sweeps that still answer."""


def write_so_far(whole: Store, finished: Store, so_far: SoFar) -> Path:
    """Write the report of a run that is not finished, and return its path.

    `finished` has those experiments of the config alone whose tables are all there.

    Raises:
        TableError: a table that it shows is damaged.
        ConfigError: the page cannot be written.
    """
    page = whole.path(paths.SO_FAR)
    text = _rendered(whole, finished, verdicts(finished), so_far)
    try:
        write_text(page, text)
    except OSError as error:
        raise ConfigError(
            f"{page.absolute()} cannot be written ({error.strerror}); copy the run, or look at it "
            f"without --page"
        ) from None
    return page


def _rendered(
    whole: Store,
    store: Store,
    findings: Sequence[ReportVerdict],
    so_far: SoFar | None = None,
) -> str:
    """Return the page of a run: of those experiments of the whole config that `config` has."""
    config = store.config
    page_sections = sections(store)
    printed = as_printed(store) if config.papers else {}
    unfolded = [section.blocks for section in page_sections]
    folds = chain.from_iterable(section.folds.values() for section in page_sections)
    bounded(chain.from_iterable([*unfolded, *folds, *printed.values()]))
    sweeps = explorer.explored(store)
    charts = [
        (selector_title, first_figure(store, name))
        for name, selector_title in titles(config, "selectors").items()
    ]
    hero: list[Block] = []
    first = page_sections[0].blocks
    # Else the first block of all stands beside the verdicts, if it is a picture: tables are wide.
    if not charts and not sweeps and first and isinstance(first[0], Picture):
        hero.append(first.pop(0))
    return _page(
        data=explorer.script(sweeps) if sweeps else None,
        config=config,
        title=partial(title, config),
        so_far=so_far,
        parameters=parameters,
        version=__version__,
        verdicts=[list(alike) for _, alike in groupby(findings, lambda verdict: verdict.answer)],
        charts=charts,
        hero=hero,
        sweeps=sweeps,
        placed=head_grid.placed,
        colour=head_grid.colour,
        strongest=head_grid.STRONGEST,
        steps=head_grid.STEPS,
        label=explorer.label,
        sections=page_sections,
        as_printed=printed,
        versions=_versions(store),
        settings=json.dumps(whole.config.model_dump(mode="json"), indent=1, ensure_ascii=False),
    )


def _versions(store: Store) -> dict[str, str]:
    """Return versions and revisions, from the config and from records of results."""
    config = store.config
    made = [batch.path(GRADED) for batch in batches(store).values()]
    made += [store.path(paths.MAP, map=name, table="heads") for name in config.maps]
    made += [store.path(paths.MEASUREMENTS, compression=name) for name in config.compressions]
    facts: dict[str, Any] = {}
    for path in made:
        facts |= read_record(path)
    versions = dict(facts.get("versions", {}))
    versions["git commit"] = facts.get("git_commit") or "none"
    for section in ("models", "questions"):
        for name, source in getattr(config, section).items():
            if source.revision:
                versions[f"{section}.{name}" if name in versions else name] = source.revision
    return versions
