"""One bench file of what all ranks have found: the ledger of a round, its floor and its overhead.

The file is JSON. Times are seconds, and medians over the rounds, unless their name says otherwise::

    schema, kind              2 numbers that say what the file is: SCHEMA and "fccl_mpi.bench"
    versions, mpi, config     of the software, of the MPI library, digest of the configuration
    scenario, method, seed, domains (how many), rounds (measured)
    nodes                     by host, cores and devices of the ranks there, and how many of the cores others
                              used, from before round 1 until after the last
    ranks                     server first: rank, who, host, device, threads, cpu, peak_mb, device_peak_mb (up
                              to the end of the first round); and of participants
        model                 backbone and width
        floor, floor_cpu      of passes and steps alone, by phase: teachers, collaborate, local, evaluate
        phases                of the real round; "exchange" is the part of them spent in exchanges
        waited, waited_share  in collectives: for others, or for the network; as a part of the round
        ratio                 round / own floor, which evaluation is no part of
        images_per_s          trained on
    round                     wall; floor, of the busiest participant; ratio (median of each round by its own
                              floor); cpu and floor_cpu of all ranks, cpu_ratio; evaluation_cpu, in cpu and
                              not in floor_cpu, of its bare passes; server_cpu_share of its wall;
                              bytes; calls (collectives, small objects too); images_per_s; busiest, and
                              waited_for, who waits least; start_up, from the launcher to the first batch of
                              round 1 without pretraining; walls of all rounds
    exchanges                 as `measure.time_exchanges` says; the first one is as the run makes it
    last_round                top1 and loss of its metrics.jsonl: those of a run that is not measured
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from fccl_mpi.config.compose import digest
from fccl_mpi.config.schema import Config
from fccl_mpi.federation.preflight import versions
from fccl_mpi.federation.world import mpi_library

SCHEMA = 1
KIND = "fccl_mpi.bench"
TRAINING = ("teachers", "collaborate", "local")  # the phases that the floor is of


def summarise(
    config: Config,
    ranks: list[dict[str, Any]],
    history: list[dict[str, Any]],
    exchanges: list[dict[str, Any]],
) -> dict[str, Any]:
    """The bench file.

    ``ranks`` are those of `measure.Probe.found`, the server first, ``history`` the lines of metrics.jsonl.
    """
    server, *others = ranks
    walls = np.array([round["wall"] for round in server["rounds"]])
    floors = np.array(
        [[sum(r["floor_wall"].get(p, 0.0) for p in TRAINING) for r in rank["rounds"]] for rank in others]
    )
    busiest = int(np.median(floors, axis=1).argmax())
    entries = [entry(rank) for rank in ranks]
    for rank, own, floor in zip(others, entries[1:], floors, strict=True):
        about = config.participants[rank["who"]]
        own |= {
            "model": f"{about.model} × {about.width:g}",
            "floor": by_phase(rank, "floor_wall"),
            "floor_cpu": by_phase(rank, "floor_cpu"),
            "phases": real_phases(history, rank["who"]),
            "waited": median(round["waited"] for round in rank["rounds"]),
            "waited_share": median(round["waited"] / round["wall"] for round in rank["rounds"]),
            "ratio": ratio(walls, floor),
            "images_per_s": median(round["images"] / round["wall"] for round in rank["rounds"]),
        }
    cpu = sum(own["cpu"] for own in entries)
    floor_cpu = sum(own["floor_cpu"].get(phase, 0.0) for own in entries[1:] for phase in TRAINING)
    evaluation_cpu = sum(own["floor_cpu"].get("evaluate", 0.0) for own in entries[1:])
    pretraining = max(history[0]["seconds"]["pretrain"].values())
    start_ups = [rank["start_up"] - pretraining for rank in others if rank["start_up"] is not None]
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "versions": versions(),
        "mpi": mpi_library(),
        "config": digest(config),
        "scenario": config.scenario,
        "method": config.method.name,
        "seed": config.seed,
        "domains": len({own.domain for own in config.participants.values()}),
        "rounds": len(walls),
        "nodes": nodes(ranks),
        "ranks": entries,
        "round": {
            "wall": float(np.median(walls)),
            "floor": float(np.median(floors[busiest])),
            "ratio": ratio(walls, floors[busiest]),
            "cpu": cpu,
            "floor_cpu": floor_cpu,
            "cpu_ratio": cpu / floor_cpu if floor_cpu else None,
            "evaluation_cpu": evaluation_cpu,
            "server_cpu_share": median(round["cpu"] / round["wall"] for round in server["rounds"]),
            "bytes": median(line["bytes_exchanged"] for line in history[1:]),
            "calls": median(round["calls"] for round in server["rounds"]),
            "images_per_s": sum(own["images_per_s"] for own in entries[1:]),
            "busiest": others[busiest]["who"],
            "waited_for": min(entries[1:], key=lambda own: own["waited"])["who"],
            "start_up": max(start_ups, default=None),
            "walls": walls.tolist(),
        },
        "exchanges": exchanges,
        "last_round": {key: history[-1][key] for key in ("top1", "loss")},
    }


def entry(rank: dict[str, Any]) -> dict[str, Any]:
    """What the server's entry holds, and a participant's too."""
    kept = ("rank", "who", "host", "device", "threads", "peak_mb", "device_peak_mb")
    return {key: rank[key] for key in kept} | {"cpu": median(round["cpu"] for round in rank["rounds"])}


def by_phase(rank: dict[str, Any], key: str) -> dict[str, float]:
    """Medians of what every round has by phase."""
    phases = {phase: None for round in rank["rounds"] for phase in round[key]}
    return {phase: median(round[key].get(phase, 0.0) for round in rank["rounds"]) for phase in phases}


def real_phases(history: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Medians of a participant's phases; a checkpoint is in the line of the round that follows it."""
    found = defaultdict(list)
    for line in history[1:]:
        for phase, seconds in line["seconds"].items():
            if phase != "wall" and not (phase == "checkpoint" and line["round"] == 1):
                found[phase].append(seconds[name])
    return {phase: median(seconds) for phase, seconds in found.items()}


def nodes(ranks: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Cores and devices by host, those of its ranks together, and the cores that other programs used."""
    found = {}
    for host in dict.fromkeys(rank["host"] for rank in ranks):
        there = [rank for rank in ranks if rank["host"] == host]
        devices = {rank["device"] for rank in there if rank["device"].startswith("cuda")}
        busy = {core: seconds for rank in there for core, seconds in rank["busy"].items()}
        others = sum(busy.values()) - sum(rank["used"] for rank in there)
        others = min(len(busy), max(0.0, others / there[0]["elapsed"]))
        found[host] = {"cores": len(busy), "devices": len(devices), "others": others}
    return found


def median(values: Any) -> float:
    """Of an iterable of numbers; 0 of none."""
    found = list(values)
    return float(np.median(found)) if found else 0.0


def ratio(walls: np.ndarray, floors: np.ndarray) -> float | None:
    """Median over rounds of wall / floor; None where nothing was computed."""
    return float(np.median(walls / floors)) if floors.all() else None
