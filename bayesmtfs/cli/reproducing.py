"""``bayesmtfs reproduce``: a paper's experiments on its data, our figures beside the printed ones."""

import json
from pathlib import Path
from typing import Annotated

import typer

from bayesmtfs.cli.console import Debug, Force, Json, Quiet, Seed, Speaker, check_free


def reproduce(
    paper: Annotated[str, typer.Argument(help="zhang2010, obozinski2006, yang2010, han2013, murugesan2016, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few repeats: about a minute for a paper.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for tables and pictures.")] = Path("bayesmtfs-reproduction"),
    seed: Seed = 0,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Run the experiments of a paper, and show our figures beside the printed ones."""
    from bayesmtfs.papers import reproduction

    speaker = Speaker(quiet, as_json)
    papers = list(reproduction.PAPERS) if paper == "all" else [paper]
    for name in papers:
        check_free(out / f"{name}.json", force)
    answers = {}
    for name in papers:
        with speaker.working(f"Reproducing {name} ..."):
            outcome = reproduction.reproduce(name, quick, seed, speaker.progress)
        out.mkdir(parents=True, exist_ok=True)
        outcome.write(out)
        speaker.say(*outcome.to_rich(), *(f"- {remark}" for remark in (*outcome.remarks, *outcome.skipped)))
        speaker.say(f"Written: {out / name}.json, .md, .png")
        answers[name] = json.loads(outcome.to_json())
        if outcome.interrupted:
            raise KeyboardInterrupt
    speaker.answer(answers)
