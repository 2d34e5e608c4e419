"""The state space model as one joint Gaussian, and the textbook recursions, slow and simple.

All functions take a general observation matrix A and use no code of the package.
"""

from __future__ import annotations

import numpy as np

NOISE_FLOOR = 1e-9


def joint(D, Q, A, R, m0, P0, n):
    """Return mean and covariance of the stacked (x_0, ..., x_n), and H and noise of y = Hx + noise, stacked as well."""
    d, k = D.shape[0], A.shape[0]
    # x = F (x_0, ε_0, ..., ε_{n−1}), where block (t, s) of F is D^{t−s}.
    powers = [np.linalg.matrix_power(D, t) for t in range(n + 1)]
    F = np.zeros(((n + 1) * d, (n + 1) * d))
    for t in range(n + 1):
        for s in range(t + 1):
            F[t * d : (t + 1) * d, s * d : (s + 1) * d] = powers[t - s]
    source_cov = np.zeros_like(F)
    source_cov[:d, :d] = P0
    for t in range(1, n + 1):
        source_cov[t * d : (t + 1) * d, t * d : (t + 1) * d] = Q
    x_mean = F[:, :d] @ m0
    x_cov = F @ source_cov @ F.T
    H = np.zeros((n * k, (n + 1) * d))
    for t in range(n):
        H[t * k : (t + 1) * k, (t + 1) * d : (t + 2) * d] = A
    noise = np.kron(np.eye(n), R)
    return x_mean, x_cov, H, noise


def posterior(D, Q, A, R, m0, P0, y):
    """Return mean (n+1, d) and covariance ((n+1)d, (n+1)d) of all states given y, and the log-likelihood."""
    n, d = y.shape[0], D.shape[0]
    x_mean, x_cov, H, noise = joint(D, Q, A, R, m0, P0, n)
    seen = ~np.isnan(y.ravel())
    H, noise = H[seen], noise[np.ix_(seen, seen)]
    error = y.ravel()[seen] - H @ x_mean
    S = H @ x_cov @ H.T + noise
    gain = np.linalg.solve(S, H @ x_cov).T
    mean = x_mean + gain @ error
    cov = x_cov - gain @ H @ x_cov
    sign, logdet = np.linalg.slogdet(S)
    assert sign > 0 or not seen.any()
    loglik = -0.5 * (logdet + error @ np.linalg.solve(S, error) + seen.sum() * np.log(2 * np.pi))
    return mean.reshape(n + 1, d), 0.5 * (cov + cov.T), loglik


def block(cov, d, t, s):
    return cov[t * d : (t + 1) * d, s * d : (s + 1) * d]


def noise_moment(D, Q, A, R, m0, P0, y):
    """Return Σ_t E[n_t n_tᵀ | y] with n_t = y_t − A x_t, from the joint distribution of states and noises."""
    n, k = y.shape
    x_mean, x_cov, H, noise = joint(D, Q, A, R, m0, P0, n)
    seen = ~np.isnan(y.ravel())
    S = (H @ x_cov @ H.T + noise)[np.ix_(seen, seen)]
    cross = noise[:, seen]  # Cov(n, y_seen)
    mean = cross @ np.linalg.solve(S, y.ravel()[seen] - (H @ x_mean)[seen])
    cov = noise - cross @ np.linalg.solve(S, cross.T)
    second = cov + np.outer(mean, mean)
    return sum(second[t * k : (t + 1) * k, t * k : (t + 1) * k] for t in range(n))


def exact_filter(D, Q, A, R, m0, P0, y):
    """Return means (n, d), covariances (n, d, d) and the log-likelihood, with the gain computed in every step."""
    x, P = m0.copy(), P0.copy()
    d = len(x)
    means, covs, loglik = [], [], 0.0
    for row in y:
        x = D @ x
        P = D @ P @ D.T + Q
        s = ~np.isnan(row)
        if s.any():
            H = A[s]
            noise = R[np.ix_(s, s)].copy()
            S = H @ P @ H.T + noise
            lift = np.diag(np.where(np.diag(noise) == 0.0, NOISE_FLOOR * np.diag(S), 0.0))
            S, noise = S + lift, noise + lift
            gain = np.linalg.solve(S, H @ P).T
            error = row[s] - H @ x
            x = x + gain @ error
            keep = np.eye(d) - gain @ H
            P = keep @ P @ keep.T + gain @ noise @ gain.T
            loglik -= 0.5 * (np.linalg.slogdet(S)[1] + error @ np.linalg.solve(S, error) + s.sum() * np.log(2 * np.pi))
        P = 0.5 * (P + P.T)
        means.append(x)
        covs.append(P)
    return np.array(means), np.array(covs), loglik


def random_system(rng, d, k, radius=0.93, noise=0.3, canonical=True):
    """Return D, Q, A, R, m0 and P0 of a random stable system without special values."""
    D = rng.normal(size=(d, d))
    D *= radius / np.abs(np.linalg.eigvals(D)).max()
    root = rng.normal(size=(d, d)) * 0.4
    Q = root @ root.T + 0.07 * np.eye(d)
    root = rng.normal(size=(k, k)) * np.sqrt(noise)
    R = root @ root.T / k + 0.2 * noise * np.eye(k)
    A = np.eye(k, d) if canonical else rng.normal(size=(k, d))
    root = rng.normal(size=(d, d)) * 0.5
    return D, Q, A, R, rng.normal(size=d) * 0.7, root @ root.T + 0.3 * np.eye(d)


def simulate(rng, D, Q, A, R, m0, P0, n):
    """Return states (n+1, d) from x_0 on, and observations (n, k)."""
    d, k = D.shape[0], A.shape[0]
    x = [rng.multivariate_normal(m0, P0)]
    for _ in range(n):
        x.append(D @ x[-1] + rng.multivariate_normal(np.zeros(d), Q))
    x = np.array(x)
    return x, x[1:] @ A.T + rng.multivariate_normal(np.zeros(k), R, size=n)


def random_series(seed, d, k, n, *, gaps=None, **options):
    """Return a random system and n observations of it. `gaps` are options of `with_gaps`, or None for no gaps."""
    rng = np.random.default_rng(seed)
    system = random_system(rng, d, k, **options)
    y = simulate(rng, *system, n)[1]
    return system, y if gaps is None else with_gaps(rng, y, **gaps)


def with_gaps(rng, y, share=0.2, blank=(2,)):
    """Return y with a random share of its entries and all entries of the rounds in `blank` missing."""
    y = y.copy()
    y[rng.random(y.shape) < share] = np.nan
    for t in blank:
        y[t] = np.nan
    return y
