"""What a report knows beyond the fit: where the data came from, how they were read, and how well the fit predicts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from bayesmtfs.selection.comparison import ComparedFit, Comparison


class Source(NamedTuple):
    """Origin of a fit; whatever is empty is left out of the report."""

    file: str = ""
    target: str = ""
    task: str = ""
    notes: tuple[str, ...] = ()  # rows left out, categories, what the target was taken for
    command: str = ""  # that made the fit
    errors: Comparison | None = None  # of the fit and of what it is measured against

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        found = {**self._asdict(), "notes": list(self.notes), "errors": None}
        if self.errors is not None:
            found["errors"] = {
                "error_name": self.errors.error_name,
                "fits": [one._asdict() for one in self.errors.fits],
            }
        return found

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Source":
        """Read what `as_dict` gave, and leave out what is not known here."""
        known = {name: value for name, value in content.items() if name in cls._fields and value is not None}
        errors = known.pop("errors", None)
        if errors is not None:
            known_fields = set(ComparedFit._fields)
            rows: list[dict[str, Any]] = [{k: v for k, v in row.items() if k in known_fields} for row in errors["fits"]]
            fits = tuple(_compared(row) for row in rows)
            known["errors"] = Comparison(fits, errors["error_name"])
        return cls(**{**known, "notes": tuple(known.get("notes", ()))})


def _compared(row: dict[str, Any]) -> ComparedFit:
    values: dict[str, Any] = {name: value if name == "name" else float(value) for name, value in row.items()}
    return ComparedFit(**values)
