"""``bayesmtfs datasets``: which data sets there are, and which of their files are here."""

from rich.table import Table

from bayesmtfs.cli.console import Debug, Json, Quiet, Speaker


def datasets(quiet: Quiet = False, as_json: Json = False, debug: Debug = False) -> None:
    """List the data sets of the papers, and whether their files are found."""
    from bayesmtfs.papers.dataset_files import available

    speaker = Speaker(quiet, as_json)
    found = available()
    table = Table("data set", "file", "bytes", "status", "where")
    for item in found:
        table.add_row(*("" if part is None else str(part) for part in item))
    speaker.say(table)
    speaker.say(
        "Set BAYESMTFS_DATA to a folder that holds the files, or BAYESMTFS_DATA_URL to the address of a mirror; every "
        "file's SHA-256 is checked."
    )
    speaker.answer({"files": [item._asdict() for item in found]})
