"""Compares the log-likelihoods that `hs.fit`, long runs of EM, statsmodels and pykalman reach, and their times.

    python -m benchmarks.fit                     # about ten minutes; needs statsmodels and pykalman (`make bench`)
    python -m benchmarks.fit --cases nile co2    # only cases whose name contains one of the words
    python -m benchmarks.fit --methods EM hs.fit # only some of the columns

There are ten random systems, and five series that come with statsmodels, each fitted with three different numbers of
latent dimensions. The features are divided by their standard deviations. All methods estimate the same parameters: D,
Q, a diagonal Σ, m_0 and P_0. All methods start from the same model: D is 0.9 times a random orthogonal matrix, Q = 0.2
I, Σ = 0.1 I, m_0 = 0 and P_0 = I. `hs.fit` also tries its other default starts. The column "one start" is `hs.fit` from
the common start alone. statsmodels maximises with its own L-BFGS and complex-step derivatives. pykalman estimates a
full Σ in EM. After every iteration its off-diagonal entries are set to 0, which is the M-step for a diagonal Σ. Times
are processor times with one thread, because further threads of BLAS would add processor time while they only wait for
work.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

import halfseen as hs
from halfseen.kernels.random import Floats, Purpose, orthogonal_matrices, stream_keys
from halfseen.models.identification.em import DIAGONAL, em_windows
from halfseen.reports.tables import Table

EM_ITERATIONS, PYKALMAN_ITERATIONS, STATSMODELS_ITERATIONS = 20_000, 50, 500
SIZES = [(2, 1), (3, 1), (3, 2), (4, 2), (4, 3), (5, 2), (6, 3), (2, 2), (3, 3), (8, 4)]  # (d, k) of the random systems
ROUNDS, SLACK = 300, 0.01


def random_system(number: int, d: int, k: int) -> Floats:
    """Return ROUNDS observations (n, k) of a random stable system with d coordinates."""
    rng = np.random.default_rng([number, 7])
    D = rng.normal(size=(d, d))
    D *= 0.93 / np.abs(np.linalg.eigvals(D)).max()
    root = 0.4 * rng.normal(size=(d, d))
    Q = root @ root.T + 0.07 * np.eye(d)
    x, ys = rng.normal(size=d), []
    for _ in range(ROUNDS):
        x = D @ x + rng.multivariate_normal(np.zeros(d), Q)
        ys.append(x[:k] + 0.5 * rng.normal(size=k))
    return np.array(ys)


def real_series() -> dict[str, Floats]:
    """Return five series (n, k) from the data sets of statsmodels. Levels are centred, growth rates are not."""
    from statsmodels import datasets

    macro = datasets.macrodata.load_pandas().data[["realgdp", "realcons"]].to_numpy()
    series = {
        "macrodata": np.diff(np.log(macro), axis=0),
        "sunspots": datasets.sunspots.load_pandas().data[["SUNACTIVITY"]].to_numpy(),
        "nile": datasets.nile.load_pandas().data[["volume"]].to_numpy(),
        "co2": np.diff(datasets.co2.load_pandas().data["co2"].resample("MS").mean().to_numpy())[:, None],
        "elnino": datasets.elnino.load_pandas().data.iloc[:, 1:].to_numpy().reshape(-1, 1),
    }
    for name in ("sunspots", "nile", "elnino"):
        series[name] = series[name] - np.nanmean(series[name])
    return series


DIMENSIONS = {"macrodata": (2, 3, 4), "sunspots": (2, 3, 4), "nile": (1, 2, 3), "co2": (2, 3, 4), "elnino": (2, 3, 4)}


def cases() -> Iterator[tuple[str, Floats, int]]:
    """Yield the name, the scaled observations and the dimension of every case."""
    for number, (d, k) in enumerate(SIZES):
        y = random_system(number, d, k)
        yield f"random {number}, k = {k}, d = {d}", y / y.std(axis=0), d
    for name, y in real_series().items():
        for d in DIMENSIONS[name]:
            yield f"{name}, k = {y.shape[1]}, d = {d}", y / np.nanstd(y, axis=0), d


def common_start(k: int, d: int) -> hs.LinearGaussianModel:
    orthogonal = orthogonal_matrices(stream_keys(0), Purpose.INITIAL_MODEL, d)[0]
    return hs.LinearGaussianModel(transition=0.9 * orthogonal, process_cov=0.2, observation_cov=np.full(k, 0.1))


def one_start(y: Floats, start: hs.LinearGaussianModel) -> float:
    return float(hs.fit(y, latent=start.latent, start=start).log_likelihoods[-1])


def several_starts(y: Floats, start: hs.LinearGaussianModel) -> float:
    return float(hs.fit(y, latent=start.latent).log_likelihoods[-1])


def long_em(y: Floats, start: hs.LinearGaussianModel) -> float:
    model = (part[None] for part in start.arrays())
    options = {"q_floor": np.full((1, start.latent), 2e-10), "r_floor": np.full((1, start.observed), 1e-6)}
    trace = em_windows(*model, y[None], iterations=EM_ITERATIONS, tolerance=-1.0, update_R=DIAGONAL, **options)[5][0]
    return float(np.nanmax(trace))


def statsmodels_fit(y: Floats, start: hs.LinearGaussianModel) -> float:
    from statsmodels.tsa.statespace.mlemodel import MLEModel

    d, k = start.latent, start.observed
    lower = np.tril_indices(d)
    sizes = np.cumsum([d * d, len(lower[0]), k, d])

    def covariance(entries: Floats) -> Floats:
        factor = np.zeros((d, d), dtype=entries.dtype)
        factor[lower] = entries
        return factor @ factor.T

    class Model(MLEModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(y, k_states=d, k_posdef=d)
            self["design"], self["selection"] = np.eye(k, d), np.eye(d)

        @property
        def start_params(self) -> Floats:
            D, Q, R, m0, P0 = start.arrays()
            factors = (np.linalg.cholesky(C)[lower] for C in (Q, P0))
            return np.concatenate([D.ravel(), next(factors), np.log(np.diag(R)), m0, next(factors)])

        @property
        def param_names(self) -> list[str]:
            return [f"theta_{i}" for i in range(len(self.start_params))]

        def update(self, params: Floats, **kwargs: object) -> None:
            params = super().update(params, **kwargs)
            D, Q, R, m0, P0 = np.split(params, sizes)
            D = D.reshape(d, d)
            self["transition"], self["state_cov"], self["obs_cov"] = D, covariance(Q), np.diag(np.exp(R))
            self.ssm.initialize_known(D @ m0, D @ covariance(P0) @ D.T + covariance(Q))

    return float(
        Model().fit(method="lbfgs", maxiter=STATSMODELS_ITERATIONS, maxfun=10**6, disp=False, cov_type="none").llf
    )


def pykalman_fit(y: Floats, start: hs.LinearGaussianModel) -> float:
    """Run EM of pykalman. A missing observation comes first, as pykalman has no state before the first observation."""
    from pykalman import KalmanFilter

    d, k = start.latent, start.observed
    D, Q, R, m0, P0 = start.arrays()
    names = ["transition_matrices", "transition_covariance", "observation_covariance"]
    peer = KalmanFilter(
        D, start.observation, Q, R, np.zeros(d), np.zeros(k), m0, P0,
        em_vars=[*names, "initial_state_mean", "initial_state_covariance"],
    )  # fmt: skip
    series = np.ma.masked_invalid(np.vstack([np.full((1, k), np.nan), y]))
    for _ in range(PYKALMAN_ITERATIONS):
        peer.em(series, n_iter=1)
        peer.observation_covariance = np.diag(np.diag(peer.observation_covariance))
    return float(peer.loglikelihood(series))


METHODS: dict[str, Callable[[Floats, hs.LinearGaussianModel], float]] = {
    "EM": long_em,
    "statsmodels": statsmodels_fit,
    "pykalman": pykalman_fit,
    "one start": one_start,
    "hs.fit": several_starts,
}
RIVALS = ("EM", "statsmodels", "pykalman")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=[""], help="words of which the name of a case contains one")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # hides warnings about convergence, which the table shows
    chosen = [case for case in cases() if any(word in case[0] for word in given.cases)]
    methods = {name: METHODS[name] for name in METHODS if name in given.methods}
    rivals = [name for name in methods if name in RIVALS]
    for method in methods.values():  # compiles the kernels
        method(chosen[0][1][:40], common_start(chosen[0][1].shape[1], chosen[0][2]))
    rows, reached, seconds = [], dict.fromkeys(methods, 0), dict.fromkeys(methods, 0.0)
    for name, y, d in chosen:
        print(name, file=sys.stderr, flush=True)
        start, values, taken = common_start(y.shape[1], d), {}, {}
        for method, work in methods.items():
            began = time.process_time()
            values[method] = work(y, start)
            taken[method] = time.process_time() - began
            seconds[method] += taken[method]
        for method, value in values.items():
            reached[method] += all(value >= values[rival] - SLACK for rival in rivals)
        row = {"case": name} | {method: f"{value:.2f}" for method, value in values.items()}
        rows.append(row | {"seconds": " / ".join(f"{one:.2f}" for one in taken.values())})
    print(Table(rows).markdown())
    print(
        f"Seconds are those of {' / '.join(methods)}, in total {' / '.join(f'{one:.0f}' for one in seconds.values())}."
    )
    print(f"Number of {len(rows)} cases at least as likely as {', '.join(rivals)}, less {SLACK} nats: {reached}")


if __name__ == "__main__":
    main(sys.argv[1:])
