"""What the judge found: one record per selector, split and number of features, and their summary."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np

from bayesmtfs.selection.judge_stability import SetStability, set_stability
from bayesmtfs.types import BoolArray, FloatArray


class Record(NamedTuple):
    """One selector on one split with one number of features."""

    selector: str
    split: int
    k: int  # features asked for
    chosen: bool  # whether k was chosen inside the training rows, together with the parameters
    n_selected: int  # fewer than k where the selector puts fewer forward
    accuracy: float
    balanced_accuracy: float
    majority_rate: float  # accuracy of always guessing the most frequent training class
    seconds: float  # of one fit of the selector
    parameters: str  # chosen inside the training rows


class Difference(NamedTuple):
    """Mean over splits of a paired difference."""

    mean: float
    standard_error: float  # nan for one split


@dataclass(frozen=True, eq=False, repr=False)
class SelectorBenchmark:
    """Accuracy, stability and time of feature selectors on the same splits.

    Attributes
    ----------
    records : one per selector, split and number of features
    sets : (selector, k or "chosen") to (n_splits, p) bool, the features of each split
    scoring : what the nested choice looked at
    """

    records: tuple[Record, ...]
    sets: dict[tuple[str, int | str], BoolArray]
    scoring: str

    @property
    def selectors(self) -> list[str]:
        """Names, in the order given."""
        return list(dict.fromkeys(record.selector for record in self.records))

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len({record.split for record in self.records})

    def values(self, selector: str, k: int | Literal["chosen"], measure: str = "accuracy") -> FloatArray:
        """(n_splits,) One measure of one selector, in the order of the splits.

        Parameters
        ----------
        selector : its name
        k : number of features, or "chosen" for the number chosen inside the training rows
        measure : a column of the records, such as "balanced_accuracy"
        """
        if measure not in Record._fields:
            raise ValueError(f"measure is {measure!r}; choose one of {', '.join(Record._fields)}")
        found = [r for r in self.records if r.selector == selector and (r.chosen if k == "chosen" else r.k == k)]
        found = [r for r in found if r.chosen == (k == "chosen")]
        if not found:
            known = sorted({r.k for r in self.records if not r.chosen})
            raise ValueError(
                f"there is no selector {selector!r} with k={k!r}; selectors are {', '.join(self.selectors)}, k is one "
                f"of {known} or 'chosen'"
            )
        return np.array([getattr(r, measure) for r in sorted(found, key=lambda r: r.split)], dtype=np.float64)

    def difference(
        self, selector: str, other: str, k: int | Literal["chosen"] = "chosen", measure: str = "accuracy"
    ) -> Difference:
        """Mean paired difference of two selectors, with its standard error over splits.

        Splits share rows, so that the error is an optimistic one.

        Parameters
        ----------
        selector, other : names
        k, measure : as in `values`
        """
        gaps = self.values(selector, k, measure) - self.values(other, k, measure)
        return Difference(float(gaps.mean()), _standard_error(gaps))

    def stability(self, selector: str, k: int | Literal["chosen"] = "chosen") -> SetStability:
        """Nogueira's stability of the sets that a selector chose on the splits, with its 95% interval.

        Parameters
        ----------
        selector : its name
        k : number of features, or "chosen"
        """
        if (selector, k) not in self.sets:
            raise ValueError(f"there is no selector {selector!r} with k={k!r}; selectors are {self.selectors}")
        return set_stability(self.sets[selector, k])

    def to_frame(self, backend: Literal["pandas", "polars"] = "pandas", per_split: bool = False) -> Any:
        """Table of the results.

        Parameters
        ----------
        backend : library of the frame; it must be installed
        per_split : one row per record, instead of means over splits

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            Rows with ``chosen`` hold the number of features that was chosen inside the training rows (k is its mean).
        """
        rows = [r._asdict() for r in self.records] if per_split else self._summary_rows()
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return nw.from_dict(columns, backend=backend).to_native()

    def _summary_rows(self) -> list[dict[str, Any]]:
        return [self._summary_row(selector, k) for selector, k in self.sets]

    def _summary_row(self, selector: str, k: Any) -> dict[str, Any]:
        accuracy = self.values(selector, k)
        means = {name: float(self.values(selector, k, name).mean()) for name in _AVERAGED}
        stability = self.stability(selector, k)
        return {
            "selector": selector,
            "chosen": k == "chosen",
            "k": means["k"],
            "n_selected": means["n_selected"],
            "accuracy": float(accuracy.mean()),
            "standard_error": _standard_error(accuracy),
            "balanced_accuracy": means["balanced_accuracy"],
            "majority_rate": means["majority_rate"],
            "stability": stability.value,
            "stability_low": stability.low,
            "stability_high": stability.high,
            "seconds": means["seconds"],
        }

    def summary(self) -> str:
        """One line per selector at the number of features chosen inside the training rows."""
        lines = [f"{self.n_splits} splits; parameters and number of features by {self.scoring} in the training rows"]
        width = max(len(name) for name in self.selectors)
        for name in self.selectors:
            row = self._summary_row(name, "chosen")
            lines.append(
                f"{name.ljust(width)}  accuracy {row['accuracy']:.3f} (majority {row['majority_rate']:.3f})  balanced "
                f"{row['balanced_accuracy']:.3f}  features {row['n_selected']:.0f}  stability {row['stability']:.2f}  "
                f"{row['seconds']:.3g} s"
            )
        return "\n".join(lines)

    def plot(self, measure: str = "accuracy", ax: Any = None) -> Any:
        """Draw a measure over the number of features, one line per selector with its standard error.

        Parameters
        ----------
        measure : as in `values`
        ax : axes to draw on; a new figure if None
        """
        # matplotlib takes longer to import than most selectors take to fit
        from bayesmtfs.selection.judge_picture import draw

        return draw(self, measure, ax)

    def __repr__(self) -> str:
        return f"SelectorBenchmark({len(self.selectors)} selectors, {self.n_splits} splits)\n{self.summary()}"


_AVERAGED = ("k", "n_selected", "balanced_accuracy", "majority_rate", "seconds")


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
