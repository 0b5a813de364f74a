"""The benchmark data sets: what each one is, who published it, and the size and hash of its files.

The files are NumPy archives without pickled objects. The hash is that of the whole file, so that a file from any
source is known to be the one meant before a byte of it is parsed.

Find a data file in a local folder, in the cache or at an address, and read it only if its SHA-256 hash is right.

The order is: the folder ``data_home`` (or the environment variable ``BAYESMTFS_DATA``), then the cache
(``BAYESMTFS_CACHE``, or the user's cache folder), then the base address ``BAYESMTFS_DATA_URL``, from which the file is
fetched into the cache. A download is verified before it takes its name in the cache, so that a broken one leaves
nothing behind. What is parsed are the very bytes that were verified.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pooch
import scipy.sparse as sp
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

Kind = Literal["regression", "classification"]


class DataFile(NamedTuple):
    """One file as it must be."""

    name: str
    size: int  # bytes
    sha256: str  # 64 hexadecimal digits


class DatasetFacts(NamedTuple):
    """What is known of one data set besides its numbers."""

    name: str
    files: tuple[DataFile, ...]
    description: str
    citation: str
    source: str  # where the original is published
    licence: str = "none stated"
    kind: Kind = "classification"


_FACTS = (
    DatasetFacts(
        "school",
        (DataFile("school.npz", 61358, "e6f546c94013dcbd83f18ab5c839053f85f7d4d0cd71c4e781cc1465f4eddb5c"),),
        """Exam scores (1 to 70) of 15362 students of 139 London schools, 1985 to 1987; a task is a school. 27
        attributes of student and school: dummies without a dropped level, and two percentages. Ten published splits
        into 11472 training and 3890 test rows. The columns that describe the school are constant within a task.""",
        """H. Goldstein (1991), Multilevel modelling of survey data, The Statistician 40:235-244. Coding and splits:
        A. Argyriou, T. Evgeniou, M. Pontil (2008), Convex multi-task feature learning, Machine Learning 73:243-272.""",
        "http://www.bristol.ac.uk/cmm/learning/support/datasets/ (ILEA567)",
        "none stated; distributed for research and teaching",
        kind="regression",
    ),
    DatasetFacts(
        "computer_survey",
        (DataFile("computer_survey.npz", 7213, "09961cebc97e60e0d688e4073993c8a28f356a96f4ab777af3bc88dc4ca94a9d"),),
        """Conjoint study: 190 persons rate from 0 to 10 how likely they are to buy each of 20 computers with 13
        attributes coded -1/+1; a task is a person, and all tasks share the 20 inputs. Computers 0 to 15 are the
        survey's calibration set, 16 to 19 its validation set. Many papers use 180 of the persons.""",
        """P. Lenk, W. DeSarbo, P. Green, M. Young (1996), Hierarchical Bayes conjoint analysis, Marketing Science
        15:173-191.""",
        "http://webuser.bus.umich.edu/plenk/downloads.htm",
        kind="regression",
    ),
    DatasetFacts(
        "landmine",
        (DataFile("landmine.npz", 1024661, "0562675987673daf69f8c1cdd0e8f7856a9aec1a291a956fc8b139e56066ceab"),),
        """Landmines (1) against clutter (0) in radar images of 29 fields; a task is a field. 14820 rows, 904 of them
        mines, 9 features. The usual experiment takes 19 fields, ten with foliage and nine of bare earth. Very
        unbalanced: compare by the area under the ROC curve.""",
        """Y. Xue, X. Liao, L. Carin, B. Krishnapuram (2007), Multi-task learning for classification with Dirichlet
        process priors, JMLR 8:35-63.""",
        "http://www.ee.duke.edu/~lcarin/LandmineData.zip",
    ),
    DatasetFacts(
        "spam",
        (
            DataFile("spam_task_b.npz", 1501, "26990d854c15d62b8e6055326ad915c3984de1b5c012dd413c2c5858d0b0212b"),
            DataFile("spam_task_b_X.npz", 1830238, "a914dfb052409acd91810667eab0d9da6bb43cc1a367d031a13e465429f7397a"),
        ),
        """Term counts of 400 e-mails in each of 15 inboxes, half of them spam (1); a task is a user. The vocabulary
        has 152543 anonymous terms, 37120 of them used here. Counts are very skewed: take logarithms or normalise
        rows. 253 rows repeat an earlier one, most of them in another inbox.""",
        """S. Bickel (2006), ECML-PKDD Discovery Challenge 2006 overview, Proceedings of the ECML-PKDD Discovery
        Challenge Workshop, 1-9 (task B).""",
        "http://www.ecmlpkdd2006.org/challenge.html",
        "none stated; released for research",
    ),
    DatasetFacts(
        "dermatology",
        (DataFile("dermatology.npz", 6936, "8ca3e64c289bc09c707ea90dd6b91049e2c7972cf66945721647ce83a5256d89"),),
        """Six erythemato-squamous diseases (classes 1 to 6) of 366 patients by 12 clinical and 22 histopathological
        attributes, graded 0 to 3 except family history (0/1) and age. Eight ages are missing.""",
        """H. A. Güvenir, G. Demiröz, N. İlter (1998), Learning differential diagnosis of erythemato-squamous
        diseases using voting feature intervals, Artificial Intelligence in Medicine 13:147-165.""",
        "https://archive.ics.uci.edu/dataset/33/dermatology",
        "CC BY 4.0",
    ),
    DatasetFacts(
        "letters",
        (DataFile("ocr_letters.npz", 642973, "81a9af870bc937d0d52c47b118fe2b24a60fa31684c209595a2f229b666a8f88"),),
        """52152 handwritten lower-case letters (classes 0 = a to 25 = z) in 6877 words, as 16 x 8 binary pixels,
        with ten published folds of whole words. Only 55 distinct words occur, so that letters are very unequal in
        number.""",
        """R. Kassel (1995), A comparison of approaches to on-line handwritten character recognition, PhD thesis,
        MIT; B. Taskar, C. Guestrin, D. Koller (2003), Max-margin Markov networks, NIPS 16.""",
        "http://ai.stanford.edu/~btaskar/ocr/",
    ),
    DatasetFacts(
        "usps",
        (DataFile("usps.npz", 2367978, "af918c52f8b9121f2bf10bb391316358bff55a30c4d51d35120285571a14a6ee"),),
        """9298 handwritten digits of US postal codes (classes 0 to 9), 16 x 16 grey levels in [-1, 1], with the
        published split into 7291 training and 2007 test rows, the latter harder.""",
        """J. J. Hull (1994), A database for handwritten text recognition research, IEEE PAMI 16:550-554; Y. LeCun et
        al. (1989).""",
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps",
    ),
    DatasetFacts(
        "miml_scene",
        (DataFile("miml_scene.npz", 500023, "35ebfc7626ba461949b8ca2697753cf8b01f47737946c9b6515a9a0f99f1b664"),),
        """2000 natural scenes with five labels (desert, mountains, sea, sunset, trees), 1.24 of them per image; a
        task is a label (-1/+1). 135 features: nine regions in fixed order with 15 numbers each.""",
        """Z.-H. Zhou, M.-L. Zhang (2007), Multi-instance multi-label learning with application to scene
        classification, NIPS 19.""",
        "http://www.lamda.nju.edu.cn/data_MIMLimage.ashx",
        "free for academic use, citing the paper",
    ),
    DatasetFacts(
        "protein",
        (
            DataFile("protein_val.npz", 592, "21d47006c9b3e1a9ae608ac93b99d4bc42d221687f0dd4ec4cb95e4534c85d01"),
            DataFile("protein_val_X.npz", 261111, "f182c7bf461d4f768d01c6b27fef744c489d6f202433792a7e4a6ddd235a8077"),
        ),
        """Secondary structure of proteins (classes 0, 1, 2) from a window of 17 positions with 21 values each: the
        2871 validation rows of a larger set, sparse, 357 features of which one is empty.""",
        """J.-Y. Wang (2002), Application of support vector machines in bioinformatics, master's thesis, National
        Taiwan University.""",
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html",
    ),
    DatasetFacts(
        "prostate_singh",
        (
            DataFile(
                "prostate_singh_12600.npz", 1919008, "d7f194ca0b530434eac05d05d71d9d3e41bfe81000969cea63d0996a595f5847"
            ),
            DataFile(
                "prostate_singh_6033.npz", 2808929, "2bd57ff967f81dcb186d81dee0f14fb22b39cd1ffcfa17e6bb4d119a3d3fe5df"
            ),
        ),
        """52 prostate tumours (1) and 50 normal samples (0) on one microarray, one task: all 12600 probes as raw
        intensities, or 6033 genes filtered, log-transformed and standardised per sample. The two versions hold the
        samples in different orders and name no probes.""",
        """D. Singh et al. (2002), Gene expression correlates of clinical prostate cancer behavior, Cancer Cell
        1:203-209; 6033 genes: M. Dettling (2004), BagBoosting for tumor classification, Bioinformatics 20:3583-3593.""",
        "https://www.broadinstitute.org/cgi-bin/cancer/datasets.cgi",
        "none stated for the original; copies circulate under MIT (12600 probes) and GPL (6033 genes)",
    ),
    DatasetFacts(
        "prostate_studies",
        (
            DataFile(
                "prostate_studies.npz", 1696552, "13bf3f41bc96a4f2a3f3c63515cedf82156e116953fa5929ae5f7dd8b181f51d"
            ),
        ),
        """Normal tissue (0), primary tumours (1) and metastases (2) of the prostate in four studies on different
        platforms, 315 samples, 1358 common genes; a task is a study. Scales differ: standardise within a study.""",
        """Lapointe et al. (2004), PNAS 101:811-816 (GSE3933); Yu et al. (2004), J Clin Oncol 22:2790-2799 (GSE6919);
        Varambally et al. (2005), Cancer Cell 8:393-406 (GSE3325); Tomlins et al. (2007), Nat Genet 39:41-51
        (GSE6099).""",
        "https://www.ncbi.nlm.nih.gov/geo/",
        "GPL-2 (R package MetaPCA, which collects the four studies)",
    ),
    DatasetFacts(
        "breast_er",
        (DataFile("breast_er.npz", 3487046, "22e5e2068fa9cf14ecef65de4011e83fac231f68e335143ce6b8a3f0bd9525ce"),),
        """Oestrogen receptor status (1 = positive) of 546 breast tumours in three studies with 254 common genes; a
        task is a study. Two of the studies also share 966 probes of one platform. 15 rows of one study have missing
        values. Scales differ: standardise within a study.""",
        """NKI: van 't Veer et al. (2002), Nature 415:530-536, and van de Vijver et al. (2002), NEJM 347:1999-2009;
        VDX: Wang et al. (2005), Lancet 365:671-679 (GSE2034), and Minn et al. (2007), PNAS 104:6740-6745 (GSE5327);
        expO (GSE2109).""",
        "https://www.ncbi.nlm.nih.gov/geo/",
        "Artistic-2.0 (Bioconductor package genefu, which distributes these subsets)",
    ),
)

# Texts as one line each
REGISTRY: dict[str, DatasetFacts] = {
    facts.name: facts._replace(
        description=" ".join(facts.description.split()), citation=" ".join(facts.citation.split())
    )
    for facts in _FACTS
}


# ---------------------------------------------------------------------- where the files are


FOLDER_VARIABLE = "BAYESMTFS_DATA"
CACHE_VARIABLE = "BAYESMTFS_CACHE"
ADDRESS_VARIABLE = "BAYESMTFS_DATA_URL"

Folder = str | os.PathLike[str] | None
Status = Literal["ready", "altered", "to download", "missing"]


class DatasetNotFound(FileNotFoundError):  # noqa: N818
    """A data file is in none of the places that were looked in."""


def cache_folder() -> Path:
    """Folder that downloads go to; it need not exist yet."""
    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("bayesmtfs")).expanduser()


def folders(data_home: Folder = None) -> list[Path]:
    """Where files are looked for: the user's folder (the argument, or the environment variable), then the cache."""
    own = data_home if data_home is not None else os.environ.get(FOLDER_VARIABLE)
    return [Path(own).expanduser(), cache_folder()] if own else [cache_folder()]


def locate(file: DataFile, data_home: Folder = None) -> tuple[Status, str | None]:
    """Say whether a file is there ("altered": with another hash), and its path or address; nothing is fetched."""
    base = os.environ.get(ADDRESS_VARIABLE)
    *own, cache = (folder / file.name for folder in folders(data_home))
    for path in (*own, cache):
        if path.is_file():
            ready = _hash_of(path.read_bytes()) == file.sha256
            if ready or path in own or not base:  # what is altered in the cache is fetched anew
                return "ready" if ready else "altered", str(path)
    return ("to download", f"{base.rstrip('/')}/{file.name}") if base else ("missing", None)


class AvailableFile(NamedTuple):
    """One file of a data set, and where it would come from."""

    name: str  # of the data set: its loader is load_<name>
    file: str
    size: int  # bytes
    status: Status
    place: str | None  # path or address; None when the file is nowhere


def available(data_home: Folder = None) -> list[AvailableFile]:
    """List the files of all data sets and where each would be taken from now; nothing is fetched."""
    return [
        AvailableFile(facts.name, file.name, file.size, *locate(file, data_home))
        for facts in REGISTRY.values()
        for file in facts.files
    ]


def read_verified(file: DataFile, published_at: str, data_home: Folder = None, progress: bool = True) -> bytes:
    """Content of a file, fetched if need be, with the hash checked.

    Raises
    ------
    DatasetNotFound
        The file is neither in the folder nor in the cache nor at the address.
    ValueError
        The file is there, but its hash is not the registered one.
    ConnectionError
        The download broke off.
    """
    status, place = locate(file, data_home)
    if place is None:
        raise DatasetNotFound(
            f"{file.name} ({file.size} bytes) is not in {' nor in '.join(map(str, folders(data_home)))}; pass data_home= "
            f"or set {FOLDER_VARIABLE} to the folder that holds it, or set {ADDRESS_VARIABLE} to a base address it can be "
            f"fetched from. The original data are published at {published_at}"
        )
    path = _fetch(file, place, published_at, progress) if status == "to download" else Path(place)
    content = path.read_bytes()
    found = _hash_of(content)
    if found != file.sha256:
        raise ValueError(
            f"{path} is not the registered {file.name}: expected {file.size} bytes with SHA-256 {file.sha256}, found "
            f"{len(content)} bytes with SHA-256 {found}; it was not read. Replace or delete it"
        )
    return content


def read_arrays(file: DataFile, published_at: str, data_home: Folder = None, progress: bool = True) -> dict[str, Any]:
    """Arrays of a verified ``.npz`` file; a CSR matrix as scipy writes it is X."""
    content = io.BytesIO(read_verified(file, published_at, data_home, progress))
    with np.load(content, allow_pickle=False) as archive:
        return {"X": sp.load_npz(content).tocsr()} if "indptr" in archive else dict(archive)


def _hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fetch(file: DataFile, address: str, published_at: str, progress: bool) -> Path:
    """Put the file into the cache; leave nothing half written."""
    folder = cache_folder()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), disable=not progress) as display:
            bar = _DownloadBar(display, file)
            return Path(pooch.retrieve(address, f"sha256:{file.sha256}", file.name, folder, progressbar=bar))
    except ValueError as error:  # pooch's word for a wrong hash (it names both) and for an address it cannot read
        raise ValueError(f"{file.name} was not accepted from {address}: {error} Check {ADDRESS_VARIABLE}") from error
    except OSError as error:  # every error of the connection is one, and so is a cache that cannot be written
        response = getattr(error, "response", None)  # there if the server answered with an error, and not yet read
        status = None if response is None else response.status_code
        if response is not None:
            response.close()
        if status in (404, 410):
            raise DatasetNotFound(
                f"there is no {file.name} at {address} (HTTP status {status}); set {ADDRESS_VARIABLE} to a base "
                f"address that holds it. The original data are published at {published_at}"
            ) from error
        raise ConnectionError(
            f"{file.name} could not be fetched from {address} into {folder}: {error}; nothing was kept, try again"
        ) from error


class _DownloadBar:
    """What pooch asks of a progress bar, drawn by rich; the surrounding ``with`` of the display ends it."""

    def __init__(self, display: Progress, file: DataFile) -> None:
        self.total = file.size  # pooch overwrites it with what the server announces, 0 if nothing
        self._size = file.size
        self._display = display
        self._bar = display.add_task(file.name, total=file.size)

    def update(self, n_bytes: int) -> None:
        """Count bytes that arrived."""
        self._display.advance(self._bar, n_bytes)

    def reset(self) -> None:
        """Start counting anew."""
        self._display.reset(self._bar)

    def close(self) -> None:
        """Say that the file is complete."""
        self._display.update(self._bar, completed=self._size)
