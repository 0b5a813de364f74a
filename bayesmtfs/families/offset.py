"""A family whose linear predictor has a known part, such as a mean that is fitted by another step."""

from bayesmtfs.families.family import Family
from bayesmtfs.types import FloatArray


class WithOffset(Family):
    """A family whose linear predictor has a known part, one number per observation."""

    def __init__(self, base: Family, offset: FloatArray) -> None:
        self.base, self.offset = base, offset  # (N,)
        self.name, self.smooth, self.curvature_bound = base.name, base.smooth, base.curvature_bound

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def offers(self, offer: str) -> bool:
        """Whether the base has this attribute or method."""
        return self.base.offers(offer)

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta plus the offset."""
        return self.base.value(y, eta + self.offset)

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Its derivative in eta."""
        return self.base.gradient(y, eta + self.offset)

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Its second derivative in eta."""
        return self.base.curvature(y, eta + self.offset)

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Its convex conjugate, ``l*(u) - u * offset``."""
        return self.base.conjugate(y, dual) - dual * self.offset

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant of the smallest loss, the offset left out of account."""
        return self.base.best_constant(y, weight)
