"""The pages of an evaluation and of an examination in Chromium: they fit the screens of desktops and phones."""

from io import BytesIO

import numpy as np
import pytest
from benchmarks.evaluation import World
from PIL import Image

import halfseen as hs

DESKTOP, PHONE = 1280, 390
FITS = "(() => { const box = document.querySelector('%s'); return box.scrollWidth <= box.clientWidth; })()"
TABLE, PICTURE = ".scroll:has(table.stacked)", "figure .card"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Save both pages with columns as wide as possible: long names, many digits, negative limits."""
    folder = tmp_path_factory.mktemp("pages")
    log = World().log(400, seed=1)
    log["reward"] = 0.01 * log["reward"] - 0.02
    hs.evaluate(log, ["uniform", "always:1", "ts-pco:width=0.25,regularisation=2"]).save(folder / "evaluation")
    rng = np.random.default_rng(2)
    model = hs.LinearGaussianModel(
        transition=0.9 * np.eye(2), process_cov=0.2 * np.eye(2), observation_cov=0.1 * np.eye(1)
    )
    ys = rng.normal(size=(120, 1))
    hs.examine(model=model, observations=ys, rewards=rng.normal(size=(120, 3))).save(folder / "health")
    return {name: f"file://{folder / name / name}.html" for name in ("evaluation", "health")}


def screenshot(page):
    """Return the lightness of every pixel of the whole page, from 0 to 255."""
    return np.asarray(Image.open(BytesIO(page.screenshot(full_page=True))).convert("L"))


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("name", ["evaluation", "health"])
def test_the_first_table_and_the_picture_need_no_scrolling(open_page, pages, name, width):
    page = open_page(width)
    page.goto(pages[name])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(FITS % TABLE)
    assert page.evaluate(FITS % PICTURE)
    last_column = "uncovered" if name == "evaluation" else "verdict"
    texts = page.evaluate(
        "[...document.querySelectorAll('table.stacked thead th, table.stacked td')].filter((one) => one.offsetParent)"
        ".flatMap((one) => [one.innerText, getComputedStyle(one, '::before').content])"
    )
    assert any(last_column in text for text in texts)


@pytest.mark.parametrize("name", ["evaluation", "health"])
def test_on_a_phone_the_panels_of_the_picture_are_below_each_other(open_page, pages, name):
    shapes = {}
    for width in (DESKTOP, PHONE):
        page = open_page(width)
        page.goto(pages[name])
        shapes[width] = page.evaluate("(({width, height}) => height / width)(document.querySelector('figure img'))")
    assert shapes[DESKTOP] < 0.7
    assert shapes[PHONE] > 1.1


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["evaluation", "health"])
def test_pictures_are_dark_on_a_dark_page(open_page, pages, name, dark):
    page = open_page(DESKTOP, dark=dark)
    page.goto(pages[name])
    box = page.locator("figure img").bounding_box()
    left, top = int(box["x"]), int(box["y"])
    picture = screenshot(page)[top : top + int(box["height"]), left : left + int(box["width"])]
    background = float(np.median(picture))
    assert (background < 60) == dark
    if name == "health":  # the grey bands, which a correct model stays within, differ from the background
        difference, pixels = np.unique(np.abs(picture.astype(int) - int(background)), return_counts=True)
        assert 0.01 * picture.size < pixels[(difference >= 12) & (difference <= 40)].max()
    ink = picture.max() if dark else picture.min()
    assert abs(float(ink) - background) > 180


def test_a_table_that_scrolls_has_a_shadow_until_its_end(open_page, pages):
    """On a phone the table of sensors has a shadow at the right until it is scrolled to its end."""
    edges = []
    page = open_page(PHONE, height=6000)
    page.goto(pages["health"])
    box = "[...document.querySelectorAll('.scroll')].find((one) => one.scrollWidth > one.clientWidth)"
    for left in (0, 10_000):
        place = page.evaluate(f"({box}.scrollLeft = {left}, {box}.getBoundingClientRect().toJSON())")
        rows, last_column = slice(int(place["top"]) + 2, int(place["bottom"]) - 2), int(place["right"]) - 2
        edges.append(float(np.median(screenshot(page)[rows, last_column])))
    assert edges[0] < edges[1] - 15
