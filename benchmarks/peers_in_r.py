"""Packages in R that answer the same questions, where they are installed: mr.mash, mvSuSiE and muSuSiE.

    uv run python benchmarks/peers_in_r.py     # which of them there are

R is called as a process of its own, one thread; the time is that of the fit, without reading and start. Settings: mr.mash
with canonical covariances, the grid of its own ``autoselect.mixsd``, a starting weight of .985 on "no effect" and a noise
covariance that is updated, started where cells are missing from targets filled in by their task's mean; mvSuSiE with the
canonical mixture; muSuSiE with its own prior; ten single effects each. muSuSiE is a folder of scripts: the environment
variable MUSUSIE says where. An entry's probability is mr.mash's weight of the components in which it is not 0, mvSuSiE's
1 - local false sign rate, and muSuSiE's own.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NAMES = ("mr.mash", "mvSuSiE", "muSuSiE")
READ = """
a <- commandArgs(TRUE); n <- as.integer(a[3]); p <- as.integer(a[4]); m <- as.integer(a[5])
f <- file(a[1], "rb"); X <- matrix(readBin(f, "double", n * p), n, p); Y <- matrix(readBin(f, "double", n * m), n, m)
close(f); Y[is.nan(Y)] <- NA
dimnames(X) <- list(1:n, paste0("x", 1:p)); dimnames(Y) <- list(1:n, paste0("y", 1:m))
sets <- list()
"""
WRITE = """
f <- file(a[2], "wb")
flat <- unlist(lapply(seq_along(sets), function(i) rbind(i, sets[[i]])))
for (part in list(seconds, coef, intercept, feature, entry, flat)) writeBin(as.numeric(part), f)
close(f)
"""
MRMASH = """
suppressMessages(library(mr.mashr)); start <- proc.time()
univariate <- compute_univariate_sumstats(X, Y, standardize = TRUE, standardize.response = FALSE)
S0 <- expand_covs(compute_canonical_covs(m), autoselect.mixsd(univariate, mult = sqrt(2))^2, zeromat = TRUE)
none <- 0.985
weights <- rep((1 - none) / (length(S0) - 1), length(S0)); weights[sapply(S0, function(s) all(s == 0))] <- none
filled <- apply(Y, 2, function(y) ifelse(is.na(y), mean(y, na.rm = TRUE), y))
V <- if (anyNA(Y)) cov(filled) else NULL
fit <- mr.mash(X, Y, S0, w0 = weights, V = V, update_V = TRUE, w0_threshold = 1e-8, verbose = FALSE,
  nthreads = 1)
seconds <- sum((proc.time() - start)[1:2])
some <- matrix(apply(fit$S0, 3, diag) > 1e-6, nrow = m)
coef <- fit$mu1; intercept <- fit$intercept
entry <- fit$w1 %*% t(some); feature <- fit$w1 %*% apply(some, 2, any)
"""
MVSUSIE = """
suppressMessages(library(mvsusieR)); start <- proc.time()
V <- if (anyNA(Y)) diag(apply(Y, 2, var, na.rm = TRUE)) else NULL
fit <- mvsusie(X, Y, L = 10, prior_variance = create_mixture_prior(R = m), residual_variance = V, verbosity = 0)
seconds <- sum((proc.time() - start)[1:2])
coef <- fit$coef[-1, ]; intercept <- fit$coef[1, ]; feature <- fit$pip; sets <- fit$sets$cs
entry <- 1 - mvsusie_get_lfsr(fit$conditional_lfsr, fit$alpha)
"""
MUSUSIE = """
setwd(Sys.getenv("MUSUSIE")); source("utility/sum_single_effect_multi.R"); start <- proc.time()
seen <- lapply(1:m, function(k) !is.na(Y[, k]))
varies <- Reduce(`&`, lapply(seen, function(k) apply(X[k, , drop = FALSE], 2, sd) > 0))
parts <- lapply(1:m, function(k) list(X = X[seen[[k]], varies], Y = Y[seen[[k]], k]))
fit <- sum_single_effect_multi(parts, scale_x = TRUE, intercept = TRUE, L = 10)
seconds <- sum((proc.time() - start)[1:2])
coef <- entry <- matrix(0, p, m); intercept <- numeric(m)
for (k in 1:m) {
  coef[varies, k] <- fit$res[[k]]$post_mean / apply(parts[[k]]$X, 2, sd); entry[varies, k] <- fit$res[[k]]$alpha
  intercept[k] <- mean(parts[[k]]$Y) - sum(colMeans(parts[[k]]$X) * coef[varies, k])
}
feature <- apply(entry, 1, max)
"""
SCRIPTS = {"mr.mash": MRMASH, "mvSuSiE": MVSUSIE, "muSuSiE": MUSUSIE}


class RFit(NamedTuple):
    """What a package gave."""

    seconds: float
    coef: Floats  # (p, m)
    intercept: Floats  # (m,)
    feature: Floats  # (p,)
    entry: Floats  # (p, m)
    sets: list[list[int]]  # credible sets, columns from 0


def why_not(name: str) -> str:
    """Why a peer cannot be run; empty if it can."""
    if shutil.which("Rscript") is None:
        return "there is no Rscript"
    if name == "muSuSiE":
        found = Path(os.environ.get("MUSUSIE", "-"), "utility").is_dir()
        return "" if found else "MUSUSIE does not name its folder"
    package = {"mr.mash": "mr.mashr", "mvSuSiE": "mvsusieR"}[name]
    call = f'quit(status = !requireNamespace("{package}", quietly = TRUE))'
    missing = subprocess.run(["Rscript", "-e", call], check=False, capture_output=True).returncode
    return f"R has no package {package}" if missing else ""


def fit_in_r(name: str, X: Floats, Y: Floats) -> RFit:
    """Fit one peer; NaN in Y was not observed."""
    (n, p), m = X.shape, Y.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        given, answer, script = (Path(folder, part) for part in ("given", "answer", "script.R"))
        given.write_bytes(np.asarray(X, float).tobytes("F") + np.asarray(Y, float).tobytes("F"))
        script.write_text(READ + SCRIPTS[name] + WRITE)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        call = ["Rscript", str(script), str(given), str(answer), str(n), str(p), str(m)]
        said = subprocess.run(call, check=False, capture_output=True, text=True, env=os.environ | threads)
        if said.returncode:
            raise RuntimeError(f"{name} stopped: {said.stderr[-500:]}")
        numbers = np.fromfile(answer)
    seconds, coef, intercept, feature, entry, flat = np.split(numbers, np.cumsum([1, p * m, m, p, p * m]))
    members = flat.reshape(-1, 2).astype(int)
    sets = [[int(j) - 1 for j in members[members[:, 0] == k, 1]] for k in np.unique(members[:, 0])]
    return RFit(float(seconds[0]), coef.reshape(m, p).T, intercept, feature, entry.reshape(m, p).T, sets)


if __name__ == "__main__":
    for peer in NAMES:
        print(f"{peer}: {why_not(peer) or 'can be run'}")
