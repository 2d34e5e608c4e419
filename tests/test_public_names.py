"""Every name in `halfseen.__all__` exists."""

import halfseen


def test_every_public_name_can_be_imported():
    for name in halfseen.__all__:
        assert getattr(halfseen, name) is not None
    assert sorted(halfseen.__all__) == dir(halfseen)
