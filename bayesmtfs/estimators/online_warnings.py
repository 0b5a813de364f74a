"""What `fit` of the online mixed-norm estimators warns of: epochs that were cut short, predictions far off."""

import warnings

from bayesmtfs.online.dual_averaging_kernels import CONSTANT_LOSS, POOLED_WEIGHT, PROGRESSIVE_LOSS
from bayesmtfs.types import ConvergenceWarning, FloatArray

FAR_WORSE = 100.0  # times the loss of constants: what the predictions of a fit that has diverged reach


def warn_of_interruption(done: int, epochs: int) -> None:
    """Warn that only some of the epochs were learned."""
    warnings.warn(
        f"interrupted after {done} of {epochs} epochs; what was learned until then is kept",
        ConvergenceWarning,
        stacklevel=4,
    )


def warn_if_far_off(epoch: FloatArray) -> None:
    """Warn where the last epoch, given as what it added to the pool, was predicted far worse than by constants."""
    if epoch[PROGRESSIVE_LOSS] > FAR_WORSE * epoch[CONSTANT_LOSS]:
        found, constant = epoch[[PROGRESSIVE_LOSS, CONSTANT_LOSS]] / epoch[POOLED_WEIGHT]
        warnings.warn(
            f"the predictions of the last epoch were far worse than constants (mean loss {found:.3g} against "
            f"{constant:.3g}): gamma is too small for these features; pass a larger gamma, gamma='auto', more epochs, or "
            "scale the features",
            ConvergenceWarning,
            stacklevel=4,
        )
