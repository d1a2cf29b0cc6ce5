"""What the user sees of a bench and of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.table import Table

from fccl_mpi.bench.model import Bench, Latency, Terms
from fccl_mpi.bench.summary import TRAINING
from fccl_mpi.federation.voice import someone_watches

PHASES = (*TRAINING, "evaluate", "checkpoint")


def measured(found: dict[str, Any]) -> None:
    """A table of the participants and some sentences, of a bench file's content."""
    server, *others = found["ranks"]
    about, run = found["round"], found["exchanges"][0]
    title = (
        f"seconds of a round, median of {found['rounds']}; in brackets the floor, bare passes and steps; "
        "ratio: the whole round to the own floor"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("participant", no_wrap=True)
    table.add_column("model", no_wrap=True)
    for heading in (*PHASES, "waited", "ratio", "CPU s", "images/s", "MB"):
        table.add_column(heading, justify="right")
    for own in others:
        memory = f"{own['peak_mb']:.0f}"
        if own["device_peak_mb"]:
            memory += f" + {own['device_peak_mb']:.0f} on {own['device']}"
        table.add_row(
            f"{own['who']} on {own['host']}" if len(found["nodes"]) > 1 else own["who"],
            own["model"],
            *(of_phase(own, phase) for phase in PHASES),
            f"{own['waited_share']:.0%}",
            times(own["ratio"]),
            in_seconds(own["cpu"], sum(own["floor_cpu"].get(phase, 0.0) for phase in TRAINING)),
            f"{own['images_per_s']:.0f}",
            memory,
        )
    console = screen()
    console.print(table)
    say = console.print
    if about["ratio"] is None:
        say(f"A round takes {about['wall']:.3f} s, in which nothing is trained.")
    else:
        say(
            f"A round takes {about['wall']:.3f} s, {times(about['ratio'])} its floor, which is "
            f"{about['busiest']}'s {about['floor']:.3f} s; "
            f"{about['images_per_s']:.0f} images/s are trained on."
        )
        say(
            f"CPU: {about['cpu']:.2f} s of all ranks, {times(about['cpu_ratio'])} the floor's "
            f"{about['floor_cpu']:.2f} s, which evaluation's bare passes, {about['evaluation_cpu']:.2f} s, "
            "are no part of."
        )
    say(f"The server takes {about['server_cpu_share']:.1%} of a core and {server['peak_mb']:.0f} MB.")
    shares = [own["waited_share"] for own in others if own["who"] != about["waited_for"]]
    if shares:
        least = next(own["waited_share"] for own in others if own["who"] == about["waited_for"])
        say(
            f"The others wait for {about['waited_for']}: they {span(shares)} of the round, "
            f"{about['waited_for']} {least:.0%}."
        )
    say(
        f"Exchanges: {about['bytes'] / 1e6:.3f} MB in {about['calls']:g} collectives a round. "
        f"{run['bytes']} bytes of {run['kind']} take a median of {run['share_ms']['median']:.3f} ms "
        f"(p99 {run['share_ms']['p99']:.3f}) if all come together, MPI's bare Allgatherv "
        f"{run['bare_ms']['median']:.3f} ms (p99 {run['bare_ms']['p99']:.3f})."
    )
    for host, node in found["nodes"].items():
        if node["others"] > 0.1:
            say(
                f"Other programs used {node['others']:.1f} of the {node['cores']} cores on {host}: "
                "without them all this is faster."
            )
    if about["start_up"] is not None:
        say(f"Start-up, without pretraining: {about['start_up']:.1f} s until the first batch of round 1.")


def predictions(benches: Sequence[Bench], latency: Latency, predicted: Sequence[Terms]) -> None:
    """A table of the terms for each number of participants, beside what was measured where it was."""
    names = [item.name for item in fields(Terms)]
    walls = {bench.size: bench.wall for bench in reversed(benches)}
    table = Table(title=f"seconds of a round, predicted from {benches[0].path}", title_justify="left")
    for heading in (*names, "round", "measured"):
        table.add_column(heading, justify="right")
    for terms in predicted:
        wall = walls.get((terms.participants, terms.nodes))
        table.add_row(
            *(str(getattr(terms, name)) for name in names[:2]),
            *(f"{getattr(terms, name):.3f}" for name in names[2:]),
            f"{terms.total:.3f}",
            "" if wall is None else f"{wall:.3f} ({terms.total / wall - 1:+.0%})",
        )
    console = screen()
    console.print(table)
    console.print(
        f"A collective takes {1e3 * latency.call:.3g} ms + {1e3 * latency.rank:.3g} ms for every other rank "
        f"+ {1e9 * latency.byte:.3g} ms for every MB."
    )


def of_phase(own: dict[str, Any], phase: str) -> str:
    """Seconds of a phase, and of its floor."""
    if phase not in own["phases"]:
        return ""
    floor = own["floor"].get(phase)
    return in_seconds(own["phases"][phase], floor)


def in_seconds(real: float, floor: float | None) -> str:
    """Seconds, and those of their floor, to three digits or a hundredth."""
    shown, *bare = (f"{one:.{1 if one >= 10 else 2}f}" for one in (real, floor) if one is not None)
    return shown + "".join(f" ({one})" for one in bare)


def times(ratio: float | None) -> str:
    """A ratio, unless nothing is trained."""
    return "-" if ratio is None else f"{ratio:.2f} ×"


def span(shares: Sequence[float]) -> str:
    """The least and the largest share in percent, once where they are the same."""
    return " to ".join(dict.fromkeys((f"{min(shares):.0%}", f"{max(shares):.0%}")))


def screen() -> Console:
    """As wide as the terminal, or as a table is where nobody looks."""
    return Console(width=None if someone_watches() else 160, highlight=False, markup=False, soft_wrap=True)
