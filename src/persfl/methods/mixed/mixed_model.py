"""A mixed model, fitted from sums by restricted maximum likelihood (REML).

    y_i = Z_i w_i + noise_i          w_i = centre + u_i,   u_i ~ N(0, Sigma)  in the random columns

With t the precision of device i's noise, P = 1 / Sigma, and F its random columns:

    V = (t G_FF + P)^-1                          what is unknown of u_i once its rows are seen
    H = t G - t^2 G_.F V G_F.                    = Z' Omega^-1 Z, what its rows tell of the centre
    h = t b - t^2 G_.F V b_F                     = Z' Omega^-1 y
    centre = C sum h,   C = (sum H + K)^-1       generalised least squares
    e = (h - H centre)_F,   u = Sigma e          the device's own part: empirical Bayes

Sigma goes up its likelihood by steps that never lose any (minorize-maximize, Zhou et al. 2019):
with B = sum e e' and R = sum (H - H C H)_FF a diagonal Sigma is multiplied by sqrt(B_jj / R_jj),
and a full one becomes the S with S R S = Sigma B Sigma. The centre's slopes have a prior too,
N(0, 1 / K), whose one variance is learned likewise: few rows of many columns tell little of it.

Noise is what models leave of the rows, and what is unknown of them there: of u_i (V), and of the
centre (C), with which a model moves by M = 1 - V t G in its random columns. Without the latter few
devices with few rows would seem to have less noise than they have, and differ more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from persfl.methods.mixed.device_sums import DeviceSums
from persfl.methods.mixed.own_noise import Noise, common_noise, own_noise
from persfl.types import Array, IntArray

STEPS = 40  # at most, of Sigma
FOLD_STEPS = 10  # from where all rows ended, once some are hidden
SETTLED = 1e-3  # steps that move no variance by a larger share are the last
# what no row tells about stays as it is: Sigma's own weight in a step, and its least variance
STAY = 1e-3
LEAST = 1e-6


class Variances(NamedTuple):
    """What a fit learns of the fleet: Sigma of the random columns, noise, the variance of the
    centre's slopes, and the centre.
    """

    Sigma: Array
    noise: Noise
    slopes: float
    centre: Array


@dataclass(frozen=True)
class MixedModel:
    """Which columns are personal, and how.

    `full`: Sigma has covariances, shrunk toward its diagonal as if d more devices had none.
    `loud`: every device has its own noise.
    """

    random: IntArray
    full: bool = False
    loud: bool = False
    level: bool = True
    """Whether the first column is the level, which has no prior."""

    def fit(
        self, sums: DeviceSums, var: Variances | None = None, steps: int = STEPS
    ) -> tuple[Array, Variances]:
        """(n, d) a model per device, and the variances."""
        var = var or self._begin(sums)
        for _ in range(steps):
            new = self._step(sums, var)
            moved = np.abs(np.diag(new.Sigma) - np.diag(var.Sigma))
            still = bool((moved <= SETTLED * np.diag(new.Sigma)).all())
            var = new
            if still:
                break
        now = self._expected(sums, var)
        return now.models, var._replace(centre=now.centre)

    def centre(self, sums: DeviceSums, var: Variances) -> Array:
        """(d,) that of the whole fleet."""
        return self._expected(sums, var).centre

    def log_likelihood(self, sums: DeviceSums, var: Variances) -> float:
        """Of all rows, but for a number that is the same for every model."""
        F = self.random
        now = self._expected(sums, var)
        t = var.noise.each
        fleet = np.broadcast_to(now.centre, sums.product.shape)
        left = t * sums.residual(fleet)
        if len(F):
            missed = sums.product - sums.square @ now.centre
            e = t[:, None] * missed[:, F]
            left = left - np.einsum("ni,nij,nj->n", e, now.V, e)
            size = np.linalg.slogdet(var.Sigma)[1] - np.linalg.slogdet(now.V)[1]
            left = left + size
        return float((sums.weight * np.log(t) - left).sum() / 2)

    def _begin(self, sums: DeviceSums) -> Variances:
        """One model for all, and half of what it leaves is personal."""
        d = sums.product.shape[1]
        weak = 1e-3 * sums.weight.mean() * np.eye(d)
        centre = np.linalg.solve(
            sums.square.sum(axis=0) + weak, sums.product.sum(axis=0)
        )
        left = sums.residual(np.broadcast_to(centre, sums.product.shape))
        noise = common_noise(left / 2, sums.weight)
        slopes = centre[self.level :]
        size = float((slopes**2).mean()) if len(slopes) else 1.0
        Sigma = np.eye(len(self.random)) * 0.5 / noise.usual
        return Variances(Sigma, noise, size + LEAST, centre)

    def own_models(self, sums: DeviceSums, var: Variances) -> Array:
        """(n, d) of devices that others' variances and centre are told."""
        return self._expected(sums, var, var.centre).models

    def _expected(
        self, sums: DeviceSums, var: Variances, centre: Array | None = None
    ) -> _Expected:
        """About the centre that these devices tell, or about one that is told."""
        F = self.random
        d = sums.product.shape[1]
        t = var.noise.each
        G = t[:, None, None] * sums.square
        b = t[:, None] * sums.product
        P = np.asarray(np.linalg.inv(var.Sigma) if len(F) else var.Sigma)
        V = np.asarray(np.linalg.inv(G[:, F[:, None], F] + P))
        side = G[:, :, F] @ V
        H = G - side @ G[:, F, :]
        h = b - np.einsum("nij,nj->ni", side, b[:, F])
        K = np.full(d, 1.0 / var.slopes)
        K[: self.level] = 1e-6
        C = np.linalg.inv(H.sum(axis=0) + np.diag(K))
        centre = C @ h.sum(axis=0) if centre is None else centre
        e = (h - H @ centre)[:, F]
        models = np.repeat(centre[None], len(b), axis=0)
        models[:, F] += e @ var.Sigma
        return _Expected(models, centre, V, H, C, e, P, side)

    def _step(self, sums: DeviceSums, var: Variances) -> Variances:
        F = self.random
        n, d = sums.product.shape
        now = self._expected(sums, var)
        HC = now.H @ now.C
        Sigma = var.Sigma
        if len(F):
            B = now.e.T @ now.e + STAY * n * now.P
            R = now.H[:, F[:, None], F].sum(axis=0)
            R = R - np.tensordot(HC[:, F], now.H[:, F], axes=((0, 2), (0, 2)))
            R = (R + R.T) / 2 + STAY * n * now.P
            if self.full:
                new = between(R, Sigma @ B @ Sigma)
                Sigma = (n * new + d * np.diag(np.diag(new))) / (n + d)
                Sigma = Sigma + LEAST * np.eye(len(F))
            else:
                # of noised sums rounding may leave less than nothing
                scale = np.sqrt(np.maximum(np.diag(B) / np.diag(R), 0.0))
                Sigma = np.diag(np.maximum(np.diag(Sigma) * scale, LEAST))
        left = self._left(sums, var, now, HC)
        noise = (
            own_noise(left, sums.weight, var.noise.usual)
            if self.loud
            else common_noise(left, sums.weight)
        )
        tail = slice(int(self.level), None)
        slopes = now.centre[tail] ** 2 + np.diag(now.C)[tail]
        size = float(slopes.mean()) if len(slopes) else 1.0
        return Variances(Sigma, noise, max(size, LEAST), now.centre)

    def _left(
        self, sums: DeviceSums, var: Variances, now: _Expected, HC: Array
    ) -> Array:
        """(n,) squared residuals that are to be expected, models being known so far only; `HC` is
        the product of H and C.
        """
        F = self.random
        n, d = sums.product.shape
        left = sums.residual(now.models)
        left = left + np.einsum("nij,nji->n", sums.square[:, F[:, None], F], now.V)
        # the centre is not known either: models move with it by M, and t G M = H
        M = np.repeat(np.eye(d)[None], n, axis=0)
        M[:, F] -= now.side.transpose(0, 2, 1)
        return np.asarray(left + np.einsum("nij,nij->n", HC, M) / var.noise.each)

    def with_own_noise(self, sums: DeviceSums, var: Variances, C: Array) -> Variances:
        """With the noise of these devices, under a prior that others have told; `C` is how far the
        centre is known.
        """
        now = self._expected(sums, var, var.centre)
        left = self._left(sums, var, now, now.H @ C)
        return var._replace(noise=var.noise.of_devices(left, sums.weight))

    def unknown_centre(self, sums: DeviceSums, var: Variances) -> Array:
        """(d, d) C: what these devices leave unknown of the centre."""
        return self._expected(sums, var).C


class _Expected(NamedTuple):
    """Names as in the formulas above."""

    models: Array
    centre: Array
    V: Array
    H: Array
    C: Array
    e: Array
    P: Array
    side: Array
    """t G_.F V"""


def between(A: Array, B: Array) -> Array:
    """The symmetric S with S A S = B, for positive A and B; none at all where of noised sums
    rounding leaves an A that is positive nowhere.

    >>> A, B = np.diag([4.0, 1.0]), np.diag([1.0, 9.0])
    >>> between(A, B).round(6).tolist(), between(-A, B).tolist()
    ([[0.5, 0.0], [0.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]])
    """
    size, U = np.linalg.eigh(A)
    if size.max() <= 0.0:
        return np.zeros_like(B)
    size = np.maximum(size, 1e-12 * size.max())
    root = (U * np.sqrt(size)) @ U.T
    inverse = (U / np.sqrt(size)) @ U.T
    inner, Q = np.linalg.eigh(root @ B @ root)
    return np.asarray(inverse @ ((Q * np.sqrt(np.maximum(inner, 0.0))) @ Q.T) @ inverse)
