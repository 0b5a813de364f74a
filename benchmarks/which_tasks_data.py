"""Data with exact zeros in some tasks: many kinds of them, each drawn afresh from a seed.

After the designs of Morgante et al. (2023, PLoS Genetics 19: e1010539): genotypes 0, 1, 2 in blocks of 20 whose latent
normals have correlation .9 between neighbours, 5 of 200 features relevant, a fifth of each target's variance explained.
Scenarios: equal effects in all tasks; independent ones; equal ones in half of the tasks, the same half for all features
(``subset``) or another one for each feature (``random``); one task only (``mostly null``); two blocks of tasks, each with
features of its own (``subgroups``). Every task has the same rows (``shared``) or rows of its own (``own``).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SCENARIOS = ("equal", "independent", "subset", "random", "mostly null", "subgroups")


@dataclass(frozen=True)
class Kind:
    """One kind of data."""

    scenario: str
    own: bool = False
    m: int = 6
    p: int = 200
    n: int = 0  # rows, of each task where they are its own; 0: 200 shared ones, 150 own ones, 400 with labels
    n_relevant: int = 5
    correlation: float = 0.9  # of neighbours
    noise: float = 2.0  # deviation, beside a signal of 1
    noise_kind: str = "normal"  # or "correlated" between tasks, "heavy" (Student t of 3 degrees)
    heavy_effects: bool = False  # Student t of 2 degrees
    unequal: bool = False  # 20 to 500 own rows
    labels: bool = False

    def sizes(self) -> list[int]:
        """Rows of every task."""
        if self.unequal:
            return [int(size) for size in np.geomspace(20, 500, self.m)]
        usual = 400 if self.labels else (150 if self.own else 200)
        return [self.n or usual] * self.m


@dataclass(frozen=True)
class DataSet:
    """Rows, targets (NaN: not observed), new rows, the true coefficients (p, m) and levels (NaN: not scored)."""

    X: Floats
    Y: Floats
    Xt: Floats
    B: Floats
    level: float = float("nan")


MAIN = {f"{s}, {'own' if own else 'shared'}": Kind(s, own) for own in (False, True) for s in SCENARIOS}
OTHER = {
    "3 tasks, subset": Kind("subset", m=3),
    "3 tasks, random, own": Kind("random", True, m=3),
    "20 tasks, random": Kind("random", m=20),
    "20 tasks, subgroups, own": Kind("subgroups", True, m=20, n=60),
    "50 tasks, random": Kind("random", m=50, n=100),
    "50 tasks, equal": Kind("equal", m=50, n=100),
    "p = n / 10": Kind("random", p=20, n_relevant=4),
    "p = 2.5 n": Kind("random", p=1000, n=400),
    "p = 12.5 n": Kind("random", p=5000, n=400),
    "p = 10 n": Kind("subset", p=1000, n=100),
    "tight correlation, subset": Kind("subset", correlation=0.995),
    "tight correlation, random, own": Kind("random", True, correlation=0.995),
    "correlated noise, subset": Kind("subset", noise_kind="correlated"),
    "correlated noise, independent": Kind("independent", noise_kind="correlated"),
    "heavy tails, random": Kind("random", noise_kind="heavy"),
    "heavy-tailed effects, random": Kind("random", heavy_effects=True),
    "sizes 20 to 500, random": Kind("random", True, unequal=True),
    "sizes 20 to 500, equal": Kind("equal", True, unequal=True),
    "dense: 50 of 100, independent": Kind("independent", p=100, n_relevant=50, noise=1.0),
    "dense: 50 of 100, equal": Kind("equal", p=100, n_relevant=50, noise=1.0),
    "dense: 50 of 100, random, own": Kind("random", True, p=100, n_relevant=50, noise=1.0),
    "no signal": Kind("equal", n_relevant=0),
    "no signal, own": Kind("equal", True, n_relevant=0),
}
LABELS = {f"labels, {s}{', own' if own else ''}": Kind(s, own, labels=True) for own in (False, True) for s in SCENARIOS}
KINDS = MAIN | OTHER | LABELS


def genotypes(rng: np.random.Generator, n: int, frequency: Floats, correlation: float = 0.9, block: int = 20) -> Floats:
    """Counts 0, 1, 2 of an allele with the given frequencies."""
    p, counts = len(frequency), np.zeros((n, len(frequency)))
    cut = np.quantile(np.random.default_rng(0).standard_normal(200_001), 1.0 - frequency)
    for _ in range(2):
        latent = rng.standard_normal((n, p))
        for i in range(p):
            if i % block:
                latent[:, i] = correlation * latent[:, i - 1] + np.sqrt(1 - correlation**2) * latent[:, i]
        counts += latent > cut
    return counts


def coefficients(
    scenario: str, rng: np.random.Generator, p: int, m: int, n_relevant: int = 5, heavy: bool = False
) -> Floats:
    """(p, m) Coefficients before they are scaled to the variance that they explain."""
    draw = partial(rng.standard_t, 2) if heavy else rng.standard_normal
    B, half = np.zeros((p, m)), rng.permutation(m)[: max(m // 2, 1)]
    for number, i in enumerate(rng.choice(p, n_relevant, replace=False)):
        effect = np.full(m, draw())
        if scenario == "independent":
            effect = draw(m)
        elif scenario == "mostly null":
            half = rng.permutation(m)[:1]
        elif scenario == "random":
            half = rng.permutation(m)[: rng.integers(1, m + 1)]
        elif scenario == "subgroups":
            half = np.arange(m)[(np.arange(m) < m // 2) == (number % 2 == 0)]
        tasks = np.arange(m) if scenario in ("equal", "independent") else half
        B[i, tasks] = effect[tasks]
    return B


def draw_data_set(kind: Kind, seed: int) -> DataSet:
    """One data set; a task that no feature acts in is noise only."""
    key = [SCENARIOS.index(kind.scenario), kind.m, kind.own, kind.labels, kind.p, kind.n, kind.n_relevant, kind.unequal]
    rng = np.random.default_rng([seed, *key, len(kind.noise_kind), int(1000 * kind.correlation)])
    sizes, m = kind.sizes(), kind.m
    n, frequency = sum(sizes) if kind.own else sizes[0], rng.uniform(0.05, 0.5, kind.p)
    X, Xt = (genotypes(rng, rows, frequency, kind.correlation) for rows in (n, 1000))
    B = coefficients(kind.scenario, rng, kind.p, m, kind.n_relevant, kind.heavy_effects)
    spread = (Xt @ B).std(axis=0)
    B = B / np.where(spread > 0, spread, 1.0) * (1.5 if kind.labels else 1.0)
    eta = (X - Xt.mean(axis=0)) @ B
    if kind.labels:
        Y = np.where(rng.random((n, m)) < 1.0 / (1.0 + np.exp(-eta)), 1.0, -1.0)
    else:
        Y = eta + kind.noise * noise_of(kind.noise_kind, rng, n, m)
    if kind.own:
        Y[np.repeat(np.arange(m), sizes)[:, np.newaxis] != np.arange(m)] = np.nan
    return DataSet(X, Y, Xt, B)


def noise_of(noise_kind: str, rng: np.random.Generator, n: int, m: int) -> Floats:
    """(n, m) Noise of deviation 1."""
    if noise_kind == "heavy":
        return np.asarray(rng.standard_t(3, (n, m)) / np.sqrt(3.0))
    own = rng.standard_normal((n, m))
    return np.sqrt(0.7) * rng.standard_normal((n, 1)) + np.sqrt(0.3) * own if noise_kind == "correlated" else own
