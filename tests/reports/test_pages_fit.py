"""The pages of an evaluation and of an examination fit wide and narrow screens of a real browser."""

import base64
from io import BytesIO

import numpy as np
import pytest
from benchmarks.evaluation import World
from PIL import Image
from service.chromium import Chromium

import halfseen as hs

WIDE, PHONE = 1280, 390
FITS = "(() => { const box = document.querySelector('%s'); return box.scrollWidth <= box.clientWidth; })()"
TABLE, PICTURE = ".scroll:has(table.stacked)", "figure .card"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Chromium(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the addresses of pages with wide columns: long names, many digits, negative limits of intervals."""
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


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("name", ["evaluation", "health"])
def test_the_first_table_and_the_figure_fit_the_screen(browser, pages, name, width):
    browser.look(width=width)
    browser.open(pages[name])
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(FITS % TABLE)
    assert browser.run(FITS % PICTURE)
    last = "uncovered" if name == "evaluation" else "verdict"
    named = browser.run(
        "[...document.querySelectorAll('table.stacked thead th, table.stacked td')].filter((one) => one.offsetParent)"
        ".flatMap((one) => [one.innerText, getComputedStyle(one, '::before').content])"
    )
    assert any(last in said for said in named)


@pytest.mark.parametrize("name", ["evaluation", "health"])
def test_a_phone_shows_the_tall_figure(browser, pages, name):
    shapes = {}
    for width in (WIDE, PHONE):
        browser.look(width=width)
        browser.open(pages[name])
        shapes[width] = browser.run("(({width, height}) => height / width)(document.querySelector('figure img'))")
    assert shapes[WIDE] < 0.7
    assert shapes[PHONE] > 1.1


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["evaluation", "health"])
def test_figures_follow_the_colour_scheme(browser, pages, name, dark, tmp_path):
    browser.look(width=WIDE, dark=dark)
    browser.open(pages[name])
    browser.screenshot(tmp_path / "page.png")
    box = browser.run("document.querySelector('figure img').getBoundingClientRect().toJSON()")
    shown = Image.open(BytesIO((tmp_path / "page.png").read_bytes())).convert("L")
    picture = np.asarray(shown.crop((box["x"], box["y"], box["right"], box["bottom"])))
    assert (np.median(picture) < 60) == dark  # the background
    if name == "health":  # the grey bands of a correct model differ from the background
        grey, off = np.unique(np.abs(picture.astype(int) - int(np.median(picture))), return_counts=True)
        assert 0.01 * picture.size < off[(grey >= 12) & (grey <= 40)].max()
    ink = picture.max() if dark else picture.min()
    assert abs(float(ink) - float(np.median(picture))) > 180


def test_a_scrollable_table_has_a_shadow(browser, pages):
    """On a phone, the table of sensors has a shadow at the right until it is scrolled to the end."""
    edges = []
    browser.look(width=PHONE, height=6000)
    browser.open(pages["health"])
    box = "[...document.querySelectorAll('.scroll')].find((one) => one.scrollWidth > one.clientWidth)"
    for left in (0, 10_000):
        place = browser.run(f"({box}.scrollLeft = {left}, {box}.getBoundingClientRect().toJSON())")
        picture = browser.send("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"]
        edges.append(edge_of(picture, place))
    assert edges[0] < edges[1] - 15


def edge_of(picture, place):
    """Return the brightness of the rightmost column of pixels of a box."""
    shown = np.asarray(Image.open(BytesIO(base64.b64decode(picture))).convert("L"))
    return float(np.median(shown[int(place["top"]) + 2 : int(place["bottom"]) - 2, int(place["right"]) - 2]))
