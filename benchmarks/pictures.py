"""Pictures of what the benchmarks wrote as JSON.

python benchmarks/pictures.py benchmarks/results/*.json    draws all again
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS, PEER, LIMIT = "#0072b2", "#999999", "#d55e00"  # told apart by colour-blind readers too


def _start(width: float, height: float, panels: int = 1):
    figure, axes = plt.subplots(1, panels, figsize=(width, height), layout="constrained")
    for axis in [axes] if panels == 1 else axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def throughput(path: Path) -> None:
    """Bars, with the range over the rounds."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    systems = [system for system in facts["systems"] if system["speeds"]][::-1]
    figure, axis = _start(8, 0.5 * len(systems) + 1.2)
    for place, system in enumerate(systems):
        speed, low, high = system["speed"], min(system["speeds"]), max(system["speeds"])
        colour = OURS if system["name"].startswith("transduce") else PEER
        axis.barh(place, speed, color=colour, xerr=[[speed - low], [high - speed]], capsize=3)
        memory = f"  ({system['memory'] / 2**30:.1f} GB)" if system["memory"] else ""
        axis.text(high, place, f"  {speed:,.0f}{memory}", va="center", fontsize=9)
    axis.set_yticks(range(len(systems)), [system["name"] for system in systems])
    axis.set_xlim(0, max(max(system["speeds"]) for system in systems) * 1.4)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_xlabel("target tokens a second (peak memory)" if systems[0]["memory"] else "target tokens a second")
    where = facts["gpu"] if facts["gpu"] != "none" else facts["machine"]
    name = path.stem.split("-")[1]
    axis.set_title(
        f"Training speed, {name} model, sentences of {facts['size']['length']:g} tokens, {where}", fontsize=11
    )
    figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)


def transfer(path: Path) -> None:
    """BLEU on the new text against how much there is of it, a line a way of training, every seed a dot."""
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = {"nothing": "from nothing", "from": "fine-tuned", "lora": "LoRA", "frozen": "encoder frozen"}
    names["mixed"] = "fine-tuned, old text mixed in"
    figure, axes = _start(10, 4, 2)
    for axis, text in zip(axes, ("captions", "tatoeba"), strict=True):
        for way, name in names.items():
            mine = [run for run in runs if run["way"] == way]
            pairs = sorted({run["pairs"] for run in mine})
            means = [statistics.mean(run[text] for run in mine if run["pairs"] == count) for count in pairs]
            colour = axis.plot(pairs, means, label=name)[0].get_color()
            axis.plot([run["pairs"] for run in mine], [run[text] for run in mine], "o", color=colour, markersize=4)
        axis.set(xscale="log", ylim=0, xlabel="pairs of the new text", ylabel="BLEU")
        axis.set_xticks([500, 2000, 10_000], ["500", "2,000", "10,000"])
        axis.minorticks_off()
        axis.set_title(f"on {'the new text, captions' if text == 'captions' else 'the old text, Tatoeba'}", fontsize=11)
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=len(names))
    figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)


def carried(path: Path) -> None:
    """BLEU against pairs of text, with and without word vectors to begin with; every seed a dot."""
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    figure, axes = _start(9, 3.6, 2)
    for axis, kind in zip(axes, ("transformer", "rnn"), strict=True):
        for way, colour, name in (("with", OURS, "beginning with word vectors"), ("without", PEER, "at random")):
            mine = [run for run in runs if run["model"] == kind and run["way"] == way]
            pairs = sorted({run["pairs"] for run in mine})
            means = [statistics.mean(run["bleu"] for run in mine if run["pairs"] == count) for count in pairs]
            axis.plot(pairs, means, color=colour, label=name)
            axis.plot([run["pairs"] for run in mine], [run["bleu"] for run in mine], "o", color=colour, markersize=4)
        axis.set(xscale="log", ylim=0, xlabel="pairs of text", ylabel="BLEU")
        axis.set_xticks(pairs, [f"{count:,}" for count in pairs])
        axis.minorticks_off()
        axis.set_title("Transformer" if kind == "transformer" else "GRU with attention", fontsize=11)
    axes[0].legend(frameon=False, loc="upper left")
    axes[0].set_ylim(0, axes[1].get_ylim()[1])
    figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)


def scaling(path: Path) -> None:
    """Speed against weights, length and batch, with what the hardware would allow."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    figure, axes = _start(13, 4, 3)
    panels = (
        ("sizes", "weights", 1e6, "weights, in millions", "25 tokens a sentence, batches of 25,600"),
        ("lengths", "length", 1, "tokens a sentence", "base model, batches of 25,600"),
        ("batches", "batch", 1, "slots of a batch, on each side", "base model, 25 tokens a sentence"),
    )
    for axis, (kind, key, unit, label, title) in zip(axes, panels, strict=True):
        entries = facts[kind]
        x = [entry[key] / unit for entry in entries]
        speeds = [entry["speed"] for entry in entries]
        axis.loglog(x, speeds, "o-", color=OURS, label="transduce")
        if facts["limit"]:
            limits = [facts["limit"] / entry["flops"] for entry in entries]
            axis.loglog(x, limits, "--", color=LIMIT, label="limit: measured matrix rate")
            for place, speed, bound in zip(x, speeds, limits, strict=True):
                axis.annotate(f"{speed / bound:.0%}", (place, speed), (0, -14), textcoords="offset points", ha="center")
        axis.set_ylim(min(speeds) / 2, axis.get_ylim()[1])
        axis.set_xlabel(label)
        axis.set_ylabel("target tokens a second")
        axis.set_title(title, fontsize=11)
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(frameon=False)
    for axis, kind, key in ((axes[1], "lengths", "length"), (axes[2], "batches", "batch")):
        places = [entry[key] for entry in facts[kind]]
        axis.set_xticks(places, [f"{place:,}" for place in places], fontsize=8)
        axis.minorticks_off()
        axis.set_ylim(1e5, 1e7)
    figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)


def decoding(path: Path) -> None:
    """Tokens a second of each system, a group of bars for each number of sentences."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    groups = facts["systems"]
    figure, axis = _start(8, 0.45 * sum(map(len, groups.values())) + 1.6)
    place, ticks = 0.0, []
    for name, systems in reversed(groups.items()):
        for system, fact in reversed(systems.items()):
            speed = fact["tokens_per_second"]
            axis.barh(place, speed, color=OURS if system.startswith("transduce") else PEER)
            axis.text(speed, place, f"  {speed:,}", va="center", fontsize=9)
            ticks.append((place, f"{name}: {system}"))
            place += 1
        place += 0.4
    axis.set_yticks(*zip(*ticks, strict=True), fontsize=9)
    axis.set_xscale("log")
    axis.set_xlim(right=axis.get_xlim()[1] * 4)
    axis.set_xlabel("output tokens a second")
    where = facts["gpu"] if facts["gpu"] != "none" else facts["machine"]
    axis.set_title(f"Decoding speed, {where}", fontsize=11)
    figure.savefig(path.with_suffix(".png"), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    for given in map(Path, sys.argv[1:]):
        if given.stem.startswith("throughput"):
            throughput(given)
        elif given.stem == "scaling":
            scaling(given)
        elif given.stem == "transfer":
            transfer(given)
        elif given.stem == "carried":
            carried(given)
        elif given.stem.startswith("decoding") and "file" not in given.stem:
            decoding(given)
