"""The formulas for flops, compared with counted operations."""

from itertools import count

import pytest
from benchmarks import em, kalman, linear_thompson, monte_carlo, problem


class Counting(float):
    """A number that counts the multiplications and additions of all instances."""

    total = count()

    def _counted(self, value):
        next(Counting.total)
        return Counting(value)

    def __add__(self, other):
        return self._counted(float(self) + float(other))

    def __sub__(self, other):
        return self._counted(float(self) - float(other))

    def __mul__(self, other):
        return self._counted(float(self) * float(other))


def count_operations(work):
    Counting.total = count()
    work()
    return next(Counting.total)


def number():
    return Counting(1.0)


def vector(n):
    return [number() for _ in range(n)]


def dot(a, b):
    """Return the dot product. As in the formulas, the sum starts from 0, so there are n additions."""
    total = number()
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    return total


@pytest.mark.parametrize(("d", "k"), [(2, 1), (4, 2), (5, 5)])
def test_filter_step_with_a_constant_gain(d, k):
    def step():
        D, G = [vector(d) for _ in range(d)], [vector(k) for _ in range(d)]
        x, y = vector(d), vector(k)
        predicted = [dot(row, x) for row in D]
        error = [y[i] - predicted[i] for i in range(k)]
        return [predicted[i] + dot(G[i], error) for i in range(d)]

    assert problem.filter_flops(d, k) == count_operations(step)


@pytest.mark.parametrize(("d", "arms"), [(2, 1), (3, 2), (6, 4)])
def test_scores_of_all_arms(d, arms):
    size = d * (d + 1) // 2

    def score():
        c = vector(d)
        products = []
        for j in range(d):
            products.append(c[j] * c[j])
            doubled = c[j] * 2.0 if j < d - 1 else None
            products += [doubled * c[i] for i in range(j + 1, d)]
        assert len(products) == size
        return [(dot(vector(size), products), dot(vector(d), c)) for _ in range(arms)]

    assert problem.score_flops(d, arms) == count_operations(score)
    # d = 2 and one arm: c0², 2c0·c1 and c1² take 4 operations, ⟨C, ccᵀ⟩ takes 6, and cᵀm takes 4.
    assert problem.score_flops(2, 1) == 14


@pytest.mark.parametrize("d", [2, 5])
def test_update_of_one_arm(d):
    def update():
        C, c, m = [vector(d) for _ in range(d)], vector(d), vector(d)
        g = [dot(row, c) for row in C]
        dot(c, g)
        residual = number() - dot(c, m)
        for i in range(d):
            m[i] = m[i] + g[i] * residual
        g = [one * number() for one in g]
        for i in range(d):
            for j in range(i, d):
                C[i][j] = C[i][j] - g[i] * g[j]

    assert problem.learn_flops(d) == count_operations(update)


def test_products_and_triangles():
    assert problem.product_flops(2, 3, 4) == 48
    assert problem.product_flops(2, 3) == 12
    assert problem.triangle(4) == 10


def test_jobs_add_up_the_steps():
    d, k, arms = 2, 1, 3
    step, scores, update = 8 + 1 + 4 + 2, 4 + 3 * 10, 8 + 4 + 4 + 1 + 4 + 2 + 6
    assert linear_thompson.flops(d, arms) == scores + update
    assert monte_carlo.agent_flops(d, k, arms) == step + scores + update
    assert monte_carlo.agent_flops(d, k, arms, learns_model=True) == step + scores + update + 2 * 6 + 8
    world = 8 + 2 + 12 + 1
    assert monte_carlo.flops(d, k, arms, learns_model=False) == world + step + scores + update
    assert monte_carlo.flops(d, k, arms, learns_model=True) == world + step + scores + update + 2 * 6 + 8
    assert kalman.series_flops(d, k) == step + 1 + 2  # one product for We, and its square
    assert em.flops(d, k) == step + 3 + (2 + 8 + 2) + 6 + 8
