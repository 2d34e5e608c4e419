"""The scaling benchmark: points, exponents, tables and the figure."""

import pytest
from benchmarks import scaling


def test_curves_have_a_point_for_every_size():
    for axis, name in (("d", "latent"), ("K", "arms"), ("B", "streams")):
        assert [point[name] for point in scaling.points(axis, "kf-ts")] == list(scaling.AXES[axis])
    assert [point["streams"] for point in scaling.points("B", "adaptive")] == [1, 10, 100]
    assert scaling.points("t", "adaptive")[0]["marks"][-1] == 1_000_000
    assert scaling.marks("kf-ts", 10_000) == [200, 400]


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("agent", scaling.AGENTS)
def test_measurement_of_a_point(agent, streams):
    player = scaling.Player(agent, 4, 2, 3, streams)
    first, second = player.up_to(30), player.up_to(60)
    assert second["round"] == 60
    assert first["microseconds"] > 0
    assert second["bytes"] >= first["bytes"] > 100


def test_the_exponent_uses_the_larger_sizes():
    points = [{"at": at, "microseconds": 10.0 + (at > 10) * 3.0 * at**1.5} for at in (1, 10, 100, 1000, 10_000)]
    assert scaling.exponent(points, "microseconds") == pytest.approx(1.5, abs=0.01)


def test_tables_and_figure(tmp_path):
    points = [{"at": at, "microseconds": 2.0 * at, "bytes": 100.0} for at in (10, 100, 1000)]
    found = {"points": points, "exponents": {"microseconds": 1.0, "bytes": -1e-9}}
    curves = {axis: {"kf-ts": found, "adaptive": found | {"points": points[:2]}} for axis in scaling.AXES}
    text = scaling.document(curves)
    assert "| kf-ts | 20 µs | 200 µs | 2 ms | 1.00 |" in text
    assert "| adaptive | 0 kB | 0 kB | not run | 0.00 |" in text
    scaling.draw(curves, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000


def test_an_unknown_axis_is_refused():
    with pytest.raises(SystemExit, match="error: axis: expected one of d, K, B, t, got 'x'"):
        scaling.main(["x"])
