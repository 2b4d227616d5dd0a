"""The figures of a benchmark, for a terminal and for JSON."""

from collections.abc import Mapping
from typing import Any

from headroom.bench.measure import REFERENCE, Measurements, Row
from headroom.bench.rivals import NEAR_TIE


def report(found: Measurements, facts: Mapping[str, Any]) -> str:
    """Lay out the table, and what is to be said of the work, the rivals and the engine."""
    peaks = ", ".join(
        f"{threads}: {rate / 1e9:.0f} GFLOP/s" for threads, rate in sorted(found.peaks.items())
    )
    lines = [
        f"{len(facts['variants'])} variants × {facts['questions']} questions, "
        f"shape {facts['shape']}; peak by threads: {peaks}",
        f"processes × threads tried: {', '.join(facts['settings'])}; the fastest counts, for each "
        f"rival on its own",
        as_table(found),
        f"unchanged answers {_share(found.unchanged)}",
    ]
    if found.alone is not None:
        lines.append(f"engine {found.alone:.1f} times as fast as one process of the published way")
    added = facts["added_head"]
    if added is not None:
        published, engine = added[REFERENCE], added["engine"]
        lines.append(
            f"one head more costs the published way {published:.3f} s, "
            f"the engine {engine:.3f} s ({engine / published:.1%})"
        )
    row = facts["rows"].get("engine", {})
    if "near_ties" in row:
        of_them = row["near_ties_differing"]
        lines.append(
            f"engine: {row['near_ties']} near ties (margin at most {NEAR_TIE:g})"
            + ("" if of_them is None else f", {of_them} of them differ")
        )
    lines.append(f"engine: no operator running {_share(facts['idle'])} of the time")
    if not any(row.key == "vllm" for row in found.rows):
        lines.append("vLLM is not measured: name a Python that has it with --vllm-python")
    return "\n".join(lines)


def _share(value: object) -> str:
    return percent(value).strip()


def as_table(found: Measurements) -> str:
    """Lay the measurements out for a terminal."""
    lines = [
        f"{'':41} {'threads':>7} {'s':>8} {'CPU s':>8} {'×':>6} {'CPU ×':>6} {'tokens/s':>9} "
        f"{'fed/kept':>8} {'verify':>6} {'decode':>6} {'floor':>6} {'differ':>12}"
    ]
    reference = found.row(REFERENCE)
    for row in found.rows:
        if not row.runs:
            lines.append(f"{row.name:41} not measured: {row.failure}")
            continue
        facts = as_json(found, row, reference)
        processes, threads = row.best
        lines.append(
            f"{row.name:41} {f'{processes} × {threads}':>7} {facts['seconds']:8.2f} "
            f"{facts['cpu_seconds']:8.2f} {_number(facts['ratio'], '6.2f')} "
            f"{_number(facts['cpu_ratio'], '6.2f')} {row.rate:9.0f} "
            f"{_number(facts['fed_per_token'], '8.2f')} {percent(facts['verify'])} "
            f"{percent(facts['decode'])} {percent(facts['of_floor'])} "
            f"{_differing(facts):>12}"
        )
    return "\n".join(lines)


def as_json(found: Measurements, row: Row, reference: Row | None) -> dict[str, object]:
    """Return the figures of a row at its fastest setting, and its time at every setting."""
    best = row.runs[row.best]
    seconds = row.seconds(row.best)
    floor_seconds = found.floor_seconds(row)
    spent = best[0].statistics
    # Workers add up their own seconds, so the sum over workers is shared out again.
    share = {
        name: spent[f"{name}_seconds"] / row.best[0] / best[0].seconds
        for name in ("verify", "decode")
        if f"{name}_seconds" in spent
    }
    return {
        "name": row.name,
        "variants": len(row.work.variants),
        "processes": row.best[0],
        "threads": row.best[1],
        "seconds": seconds,
        "cpu_seconds": row.tokens / row.cpu_rate,
        "tokens": row.tokens,
        "tokens_per_second": row.rate,
        "ratio": None if reference is None else row.rate / reference.rate,
        "cpu_ratio": None if reference is None else row.cpu_rate / reference.cpu_rate,
        "fed_per_token": None if best[0].fed is None else best[0].fed / row.tokens,
        "verify": share.get("verify"),
        "decode": share.get("decode"),
        "of_floor": None if floor_seconds is None else floor_seconds / seconds,
        "answers": len(row.choices),
        "differing": found.differing(row),
        "near_ties": len(best[0].near_ties),
        "near_ties_differing": found.differing(row, near_ties=True),
        "statistics": spent,
        "all_seconds": {
            f"{processes}x{threads}": [run.seconds for run in runs]
            for (processes, threads), runs in row.runs.items()
        },
    }


def _number(value: object, style: str) -> str:
    width = int(style.partition(".")[0])
    return f"{'–':>{width}}" if value is None else f"{value:{style}}"


def percent(value: object) -> str:
    """Write a share; a dash where there is none."""
    return f"{'–':>6}" if not isinstance(value, float) else f"{value:6.1%}"


def _differing(facts: dict[str, object]) -> str:
    return "–" if facts["differing"] is None else f"{facts['differing']} of {facts['answers']}"
