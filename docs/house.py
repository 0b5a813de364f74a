"""Measure how the package is built: sizes, who knows what, and how many files a call goes through.

    python docs/house.py              # this tree
    python docs/house.py TREE [TREE]  # other trees, such as a checkout of an earlier version, one column each

The numbers are read from the source, except for the walks, which run small fits with compilation switched off and count
the files whose functions are called.
"""

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LOSSES = {"squared", "gaussian", "absolute", "logistic", "hinge", "poisson"}
COMMON_WORDS = ("Settings", "State", "Rows", "Sums", "Draws")
OWN_OF_LOSSES = ("families", "likelihoods")

WALKS = {
    "`MixedNormRegressor.fit`": "bm.MixedNormRegressor().fit(X, y, tasks=tasks)",
    '`JeffreysRegressor(norm_q="learn").fit`': 'bm.JeffreysRegressor(norm_q="learn").fit(X, y, tasks=tasks)',
    "`BayesianClassifier.fit`": "bm.BayesianClassifier(draws=5, tune=5, chains=1).fit(X, y > 0, tasks=tasks)",
    "`partial_fit`": "bm.OnlineMixedNormRegressor().partial_fit(X, y, tasks=tasks)",
}

WALK = """
import sys, threading, warnings
warnings.simplefilter("ignore")
import bayesmtfs as bm
sim = bm.simulate_tasks(n_tasks=3, n_features=5, n_relevant=2, n_samples=12, random_state=0)
X, y, tasks = sim.X, sim.y, sim.tasks
seen = set()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & 1:  # a function, not the body of a module or class
        seen.add(frame.f_code.co_filename)
bm = {{name: getattr(bm, name) for name in dir(bm) if name[0].isupper()}}  # loaded before the walk
bm = type("names", (), bm)
def run():
    {call}
run()  # which imports what it needs
threading.setprofile(note)  # of the threads that sampling starts
sys.setprofile(note)
run()
sys.setprofile(None)
print(len({{name for name in seen if "/bayesmtfs/" in name or "/models/" in name and "site-packages" not in name}}))
"""


class Tree:
    """The parsed source of one checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths = [*(root / "bayesmtfs").rglob("*.py"), *(root / "models").rglob("*.py")]
        self.paths = sorted(p for p in paths if "bayesmtfs/models" not in p.as_posix())
        self.trees = {path: ast.parse(path.read_text()) for path in self.paths}

    def folder(self, path: Path) -> str:
        """Name of the sub-package that a file belongs to."""
        parts = path.relative_to(self.root).parts
        return parts[1] if parts[0] == "bayesmtfs" and len(parts) > 2 else parts[0]

    def module(self, path: Path) -> str:
        """Dotted name of a file."""
        parts = list(path.relative_to(self.root).with_suffix("").parts)
        parts = ["bayesmtfs", *parts] if parts[0] == "models" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def nodes(self, *without: str) -> Iterator[tuple[Path, ast.AST]]:
        """All syntax nodes, those of some sub-packages left out."""
        for path, tree in self.trees.items():
            if self.folder(path) not in without:
                yield from ((path, node) for node in ast.walk(tree))

    def classes(self) -> Counter[str]:
        """How often each class name is defined."""
        return Counter(node.name for _, node in self.nodes() if isinstance(node, ast.ClassDef))


def size(tree: Tree) -> str:
    """Files and lines."""
    return f"{len(tree.paths)}, {sum(len(path.read_text().splitlines()) for path in tree.paths):,}"


def loss_names(tree: Tree) -> str:
    """Comparisons with the name of a loss outside of the families."""
    found = [path for path, node in tree.nodes(*OWN_OF_LOSSES) if isinstance(node, ast.Compare) and _names_loss(node)]
    return f"{len(found)} in {len(set(found))} files"


def _names_loss(node: ast.Compare) -> bool:
    constants = {
        leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)
    }
    return bool(constants & LOSSES)


def penalty_tests(tree: Tree) -> str:
    """``isinstance`` tests on classes of the priors outside of them."""
    own = {n.name for p, n in tree.nodes() if isinstance(n, ast.ClassDef) and tree.folder(p) == "priors"}
    found = [
        path
        for path, node in tree.nodes("priors")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance"
        if own & {leaf.id for leaf in ast.walk(node.args[1]) if isinstance(leaf, ast.Name)}
    ]
    return f"{len(found)} in {len(set(found))} files"


def single_importers(tree: Tree) -> str:
    """Modules that exactly one other module imports."""
    modules = {tree.module(path) for path in tree.paths}
    importers: dict[str, set[str]] = {module: set() for module in modules}
    for path, node in tree.nodes():
        for name in _imported(node):
            if name in modules and name != tree.module(path):
                importers[name].add(tree.module(path))
    return str(sum(len(users) == 1 for users in importers.values()))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def common_words(tree: Tree) -> str:
    """Classes of the most reused names, and class names that are used more than once."""
    classes = tree.classes()
    repeated = sum(count > 1 for count in classes.values())
    return ", ".join(str(classes[word]) for word in COMMON_WORDS) + f"; {repeated} repeated"


def interrupts(tree: Tree) -> str:
    """Places that catch Ctrl-C."""
    caught = [
        node
        for _, node in tree.nodes()
        if isinstance(node, ast.ExceptHandler) and "KeyboardInterrupt" in ast.unparse(node.type or ast.Constant(0))
    ]
    progress = [n for p, n in tree.nodes() if p.stem == "progress" and isinstance(n, ast.FunctionDef)]
    own = any("KeyboardInterrupt" in ast.unparse(function) for function in progress if function.name == "__exit__")
    return str(len(caught) + own)


def unused_protocols(tree: Tree) -> str:
    """Protocols that no annotation names."""
    protocols = {
        node.name
        for _, node in tree.nodes()
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
    }
    used = {node.id for _, node in tree.nodes() if isinstance(node, ast.Name)}
    return ", ".join(sorted(protocols - used)) or "none"


def walk(tree: Tree, call: str) -> str:
    """Files that a call goes through, compilation switched off."""
    environment = os.environ | {"PYTHONPATH": str(tree.root), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", WALK.format(call=call)]
    done = subprocess.run(command, env=environment, cwd=tree.root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or (done.stderr.strip().splitlines() or ["no answer"])[-1]


MEASURES = {
    "source files, lines (package and `models/`)": size,
    "comparisons of loss names outside the families": loss_names,
    "`isinstance` tests on penalties and priors outside `priors/`": penalty_tests,
    "modules with exactly one importer": single_importers,
    f"classes named {', '.join(COMMON_WORDS)}; class names used more than once": common_words,
    "places that catch Ctrl-C": interrupts,
    "protocols that nobody uses": unused_protocols,
}


def main() -> None:
    """Print the table."""
    here = Path(__file__).resolve().parent.parent
    trees = [Tree(Path(name).resolve()) for name in sys.argv[1:]] or [Tree(here)]
    print("| measure |" + "".join(f" {tree.root.name} |" for tree in trees))
    print("|---|" + "---|" * len(trees))
    for words, measure in MEASURES.items():
        print(f"| {words} |" + "".join(f" {measure(tree)} |" for tree in trees), flush=True)
    for words, call in WALKS.items():
        print(f"| files crossed by {words} |" + "".join(f" {walk(tree, call)} |" for tree in trees), flush=True)


if __name__ == "__main__":
    main()
