"""The page in a real Chromium: a stream is made, decisions are sent, the charts move. And the routes that feed it."""

import gzip
import os
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from service.chromium import Chromium
from service.dashboard_app import served

from halfseen.journal.journal import Token
from halfseen.service.dashboard import queries, routes
from halfseen.service.schemas import DecisionRequest, RewardRequest, StreamSpec

SHOTS = os.environ.get("HALFSEEN_SCREENSHOTS")  # a folder to keep pictures of the pages in
READER = Token("1", "reader", b"", ["read"], None, 0)
ONE_STREAM = Token("2", "one", b"", ["read"], ["mine"], 0)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("dashboard") / "journal.db") as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Chromium(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def page(browser):
    """A fresh page, wide and light, that has said nothing yet."""
    browser.open("about:blank")
    browser.look(width=1280)
    browser.events.clear()
    return browser


def create(service, name, **options):
    spec = {"observed": ["demand", "rain"], "arms": ["low", "middle", "high"], "agent": "emkf-ts", "seed": 7}
    spec["options"] = {"latent": 3, "observation_cov": 0.1} if spec["agent"] == options.get("agent", "emkf-ts") else {}
    service.call(service.engine.create_stream(StreamSpec(name=name, **(spec | options))))


def play(service, name, rounds, *, unpaid=0, seed=0):
    """Decisions in batches, with rewards for all but the first `unpaid` of each.

    The context goes round in a slow circle, of which one side is seen; arms pay by the other.
    """
    rng, engine = np.random.default_rng(seed), service.engine
    arms = service.call(engine.stream(name)).arms
    turn = 0.995 * np.array([[np.cos(0.1), np.sin(0.1)], [-np.sin(0.1), np.cos(0.1)]])
    x = np.array([3.0, 0.0])
    for start in range(0, rounds, 50):
        xs, asks = [], []
        for _ in range(min(50, rounds - start)):
            x = turn @ x + 0.25 * rng.normal(size=2)
            xs.append(x)
            asks.append(
                DecisionRequest([float(x[0]) + 0.4 * rng.normal(), None if rng.random() < 0.1 else rng.normal()])
            )
        decided = service.call(engine.decide_all(name, asks))
        pays = [(arms.index(one.arm) - 1) * x[1] + 0.5 * rng.normal() for one, x in zip(decided, xs, strict=True)]
        told = [RewardRequest(one.id, float(pay)) for one, pay in zip(decided, pays, strict=True)][unpaid:]
        service.call(engine.reward_all(name, told))


def get(service, path, **options):
    return httpx.get(service.url + path, **options)


# ---------------------------------------------------------------------- the page


def test_a_stream_is_made_and_its_charts_move(service, page):
    page.open(service.url)
    page.wait_for("document.querySelector('.lead')?.textContent === 'No streams yet.'")
    assert "curl" in page.run("document.querySelector('pre').innerText")
    create(service, "prices")
    page.wait_for("document.querySelector('.streams a')?.textContent === 'prices'")  # by itself

    page.run("document.querySelector('.streams a').click()")
    page.wait_for("document.querySelector('h1').textContent === 'prices'")
    page.wait_for("document.body.innerText.includes('No rewards yet')")
    assert "/v1/streams/prices/rewards" in page.run("document.body.innerText")

    play(service, "prices", 300, unpaid=2)
    drawn = "document.querySelector('.chart .scatterlayer .lines path')?.getAttribute('d')"
    first = page.wait_for(drawn)
    assert page.wait_for("document.querySelectorAll('.chart .main-svg').length") >= 10
    play(service, "prices", 300, unpaid=2, seed=1)
    page.wait_for(f"{drawn} !== {first!r}")
    page.wait_for("document.querySelector('.tiles dd span').textContent === '600'")
    label = page.run("document.querySelector('.chart[role=img]').getAttribute('aria-label')")
    assert label.startswith("Rewards: mean ")
    assert "after 576 rewards" in label
    assert page.complaints() == []
    assert all(url.startswith(service.url) for url in page.requests()), "works offline"


def test_tables_hold_the_numbers_of_the_charts(service, page):
    create(service, "tables")
    play(service, "tables", 200, unpaid=5)
    page.open(service.url + "/#/streams/tables")
    page.wait_for("document.querySelectorAll('details:not([hidden]) .scroll').length >= 5")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for("[...document.querySelectorAll('.card')].every((card) => card.querySelector('tbody tr'))")
    sizes = page.run(
        "[...document.querySelectorAll('.card')].map((card) => [card.querySelector('h2').textContent, "
        "card.querySelectorAll('tbody tr').length, card.querySelectorAll('tbody th[scope=row]').length])"
    )
    by_title = {title: (rows, heads) for title, rows, heads in sizes}
    found = get(service, "/v1/streams/tables/series").json()
    assert by_title["Rewards"][0] == len(found["rewards"]["round"])
    assert by_title["Estimated context"][0] == 200
    assert by_title["Share of each arm"][0] == len(found["arms"]["round"]) + 1
    assert by_title["Waiting for rewards"][0] == 7 + 20
    assert all(rows == heads > 0 for rows, heads in by_title.values())


def test_a_coordinate_of_the_context_can_be_chosen(service, page):
    create(service, "coordinates")
    play(service, "coordinates", 200)
    page.open(service.url + "/#/streams/coordinates")
    page.wait_for("document.querySelectorAll('#coordinate option').length === 3")
    assert page.run("[...document.querySelectorAll('#coordinate option')].map((one) => one.text)") == [
        "demand", "rain", "hidden 1",
    ]  # fmt: skip
    page.run(
        "{ const s = document.querySelector('#coordinate'); s.value = '2'; s.dispatchEvent(new Event('change')); }"
    )
    page.wait_for("document.querySelector('[aria-label^=\"Estimated context: hidden 1\"]') !== null")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_the_screen_and_can_be_read_in_light_and_dark(service, page, tmp_path, width, dark):
    create(service, "offers")
    if service.call(service.engine.stream("offers")).decisions == 0:
        play(service, "offers", 1500, unpaid=2)
    page.look(width=width, dark=dark)
    listed = "document.querySelector('.streams a') !== null"
    drawn = "document.querySelectorAll('.main-svg').length >= 10"
    for where, ready in (("", listed), ("streams/offers", drawn)):
        page.open(f"{service.url}/#/{where}")
        page.wait_for(ready)
        assert page.run("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        outside = (
            "[...document.querySelectorAll('.card, .tiles div, .main-svg, button, h1')].filter((one) => "
            "one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"
        )
        assert page.run(outside) == []
        folder = Path(SHOTS) if SHOTS else tmp_path
        page_name = where.partition("/")[0] or "overview"
        picture = folder / f"dashboard-{page_name}-{width}-{'dark' if dark else 'light'}.png"
        time.sleep(3.0 if SHOTS else 0.3)
        page.screenshot(picture)
        assert picture.stat().st_size > 10_000
    worst = page.run(_CONTRAST)
    assert worst["ratio"] >= 4.5, worst
    assert page.complaints() == []


# The lowest contrast between a text and the ground it is on (WCAG asks for 4.5), of HTML and of charts alike.
_CONTRAST = """(() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  let worst = { ratio: 99 };
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !one.getClientRects().length || one.closest('.skip') || one.closest('noscript')) continue;
    const style = getComputedStyle(one);
    const ink = light(parts(one instanceof SVGElement ? style.fill : style.color));
    const [a, b] = [ink, light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst.ratio) worst = { ratio, text: one.textContent.slice(0, 60) };
  }
  return worst;
})()"""


def test_it_can_be_used_by_keyboard(service, page):
    create(service, "keys")
    play(service, "keys", 100)
    page.open(service.url + "/#/streams/keys")
    page.wait_for("document.querySelectorAll('details:not([hidden]) summary').length >= 4")
    page.run("document.activeElement.blur()")
    where = (
        "(() => { const one = document.activeElement; const style = getComputedStyle(one);"
        " return [one.textContent.trim().slice(0, 20) || one.id, style.outlineStyle, style.outlineWidth]; })()"
    )
    visited = []
    for _ in range(30):
        page.press("Tab")
        name, outline, thickness = page.run(where)
        if not page.run("document.activeElement !== document.body"):
            break
        visited.append(name)
        assert (outline, thickness) == ("solid", "3px"), f"focus cannot be seen on {name}"
    assert visited[:5] == ["Skip to the content", "halfseen", "API", "Token", "Pause"]
    assert visited.count("The numbers") >= 4
    assert "The facts" in visited, "there is no trap on the way"

    page.run("document.querySelector('.skip').focus()")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "main"
    assert page.run("location.hash") == "#/streams/keys", "and the page stays"

    page.run("document.querySelector('#token-toggle').focus()")
    page.press("Enter")
    page.wait_for("document.activeElement.id === 'token'")
    page.press("Escape")
    assert page.run("document.activeElement.id") == "token-toggle"
    assert page.run("document.querySelector('#token-panel').hidden")


@pytest.mark.slow
def test_it_rests_while_hidden_or_paused(service, page):
    create(service, "rest")
    page.open(service.url + "/#/streams/rest")
    page.wait_for("document.querySelector('#status').textContent.startsWith('Updated')")

    def asked(seconds, after="1"):
        page.events.clear()
        page.run(after)
        time.sleep(seconds)
        return sum("/series" in url for url in page.requests())

    hidden = "Object.defineProperty(document, 'hidden', {{ get: () => {}, configurable: true }})"
    turned = "document.dispatchEvent(new Event('visibilitychange'))"
    assert asked(4.5) >= 2
    asked(0.3, "document.querySelector('#pause').click()")
    assert asked(4.5) == 0
    assert page.run("document.querySelector('#pause').getAttribute('aria-pressed')") == "true"
    assert asked(1.0, "document.querySelector('#pause').click()") >= 1
    asked(0.3, f"{hidden.format('true')}; {turned}")
    assert asked(4.5) == 0
    assert asked(1.0, f"{hidden.format('false')}; {turned}") >= 1


def test_a_token_is_asked_for_and_kept_in_this_tab_only(tmp_path, page):
    with served(tmp_path / "journal.db", secrets={"secret": READER}, identify=False) as service:
        create(service, "guarded")
        page.open(service.url)
        page.wait_for("!document.querySelector('#token-panel').hidden")
        page.wait_for("document.querySelector('#trouble-text').textContent.includes('asks for a token')")
        assert "guarded" not in page.run("document.body.innerText")
        page.run("document.querySelector('#token').value = ' secret '")
        page.run("document.querySelector('#token-panel').requestSubmit()")
        page.wait_for("document.querySelector('.streams a')?.textContent === 'guarded'")
        assert page.run("document.querySelector('#trouble').hidden")
        assert page.run("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie])") == (
            '[{"halfseen-token":"secret"},{},""]'
        )
        assert all("secret" not in url for url in page.requests())
        page.run("document.querySelector('#token-forget').click()")
        page.wait_for("!document.querySelector('#trouble').hidden")
        assert page.run("sessionStorage.length") == 0


def test_a_service_that_goes_away_is_said_and_tried_again(tmp_path, page):
    with served(tmp_path / "journal.db", identify=False) as service:
        create(service, "going")
        page.open(service.url + "/#/streams/going")
        page.wait_for("document.querySelector('#status').textContent.startsWith('Updated')")
    page.wait_for("document.querySelector('#trouble-text').textContent.startsWith('The service does not answer.')")
    assert "Trying again in" in page.run("document.querySelector('#trouble-text').textContent")
    assert page.run("document.querySelector('h1').textContent") == "going", "what was there stays"


def test_a_stream_that_is_not_there_is_said(service, page):
    page.open(service.url + "/#/streams/%3Cimg%20src=x%3E")
    page.wait_for("document.querySelector('#trouble-text').textContent.includes('no such stream')")
    assert page.run("document.querySelector('h1').textContent") == "<img src=x>"
    assert page.run("document.querySelectorAll('img').length") == 0


def test_names_are_text_wherever_they_appear(service, page):
    """Arms and features may be called anything; plotly reads a little markup, but runs none."""
    evil = '<img src=x onerror="document.title=1"><a href="javascript:alert(1)">x</a>'
    create(service, "evil", arms=[evil, "b"], observed=[evil, "y"])
    play(service, "evil", 100)
    page.open(service.url + "/#/streams/evil")
    page.wait_for("document.querySelectorAll('.main-svg').length >= 10")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    time.sleep(2.5)
    assert page.run("document.title") == "evil – halfseen"
    assert page.run("document.querySelectorAll('img').length") == 0
    legends = page.run("[...document.querySelectorAll('.legend')].map((one) => one.textContent).join()")
    assert evil in legends
    links = (
        "[...document.querySelectorAll('a')].map((one) => one.getAttribute('href') ?? one.getAttribute('xlink:href'))"
    )
    assert all(link.startswith(("#", "/docs")) for link in page.run(links))
    assert page.complaints() == []


# ---------------------------------------------------------------------- the routes


def test_files_come_with_a_strict_policy_and_nothing_else_comes(service):
    home = get(service, "/")
    policy = home.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<style" not in home.text
    assert " style=" not in home.text
    assert home.text.count("<script") == home.text.count('<script type="module" src=')
    for name in ("style.css", "plotly.css", "app.js", "stream.js", "icon.svg"):
        assert get(service, f"/dashboard/{name}").status_code == 200
    for name in ("routes.py", "..%2froutes.py", "%2e%2e/routes.py", "nothing.js", "__init__.py"):
        assert get(service, f"/dashboard/{name}").status_code == 404


def test_plotly_is_fetched_once_and_then_asked_about(service):
    path = "/dashboard/plotly.min.js"
    first = get(service, path, headers={"accept-encoding": "gzip"})
    assert first.headers["cache-control"] == "no-cache"
    again = get(service, path, headers={"accept-encoding": "gzip", "if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = get(service, path, headers={"accept-encoding": "identity", "if-none-match": first.headers["etag"]})
    assert other.status_code == 200
    assert other.headers["etag"] != first.headers["etag"]


def test_plotly_is_that_of_its_package_and_is_packed_for_those_who_take_it(service):
    packed = get(service, "/dashboard/plotly.min.js", headers={"accept-encoding": "gzip"})
    plain = get(service, "/dashboard/plotly.min.js", headers={"accept-encoding": "identity"})
    assert packed.content == plain.content == routes._files()["plotly.min.js"].read_bytes()
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < 0.4 * len(plain.content)
    assert gzip.decompress(routes._compressed(routes._files()["plotly.min.js"])) == plain.content


@pytest.mark.parametrize("query", ["points=0", "points=1001", "points=x", "points=1e2", "coordinate=-1", "points=٣"])
def test_bad_questions_are_refused_in_one_line(service, query):
    create(service, "asked")
    reply = get(service, f"/v1/streams/asked/series?{query}")
    assert reply.status_code == 422
    assert "expected an integer from" in reply.json()["error"]["message"]


def test_a_stream_that_is_not_there_is_said_to_be_so_until_it_is_made(service, page):
    page.open(service.url + "/#/streams/yet-to-come")
    page.wait_for("document.querySelector('.lead').textContent === 'There is no stream of this name.'")
    shown = "[...document.querySelectorAll('.card, .tiles')].filter((one) => one.checkVisibility()).length"
    assert page.run(shown) == 0
    assert "Loading" not in page.run("document.querySelector('main').innerText")
    create(service, "yet-to-come")
    page.run("document.querySelector('#retry').click()")
    page.wait_for("document.querySelector('.lead').textContent === 'No decisions yet.'")
    assert page.run(shown) == 7


def test_a_stream_that_is_not_there_is_404_and_is_not_remembered(service):
    for end in ("series", "health"):
        reply = get(service, f"/v1/streams/nobody/{end}")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


def test_the_overview_pages_and_keeps_to_the_streams_of_a_token(tmp_path):
    secrets = {"all": READER, "one": ONE_STREAM}
    with served(tmp_path / "journal.db", secrets=secrets, identify=False) as service:
        for name in ("mine", "other", "third"):
            create(service, name)
        play(service, "mine", 20, unpaid=5)

        def ask(path, secret):
            return get(service, path, headers={"authorization": f"Bearer {secret}"})

        first = ask("/v1/overview?limit=2", "all").json()
        assert [one["name"] for one in first["streams"]] == ["mine", "other"]
        assert (first["streams"][0]["decisions"], first["streams"][0]["rewards"]) == (20, 15)
        rest = ask(f"/v1/overview?limit=2&after={first['after']}", "all").json()
        assert ([one["name"] for one in rest["streams"]], rest["after"]) == (["third"], None)
        assert [one["name"] for one in ask("/v1/overview", "one").json()["streams"]] == ["mine"]
        assert ask("/v1/streams/mine/series", "one").status_code == 200
        for end in ("series", "health"):
            assert ask(f"/v1/streams/other/{end}", "one").status_code == 403
            assert ask(f"/v1/streams/mine/{end}", "nobody").status_code == 401
        assert ask("/v1/overview", "nobody").status_code == 401


def test_series_follow_the_stream_and_only_what_is_new_is_read(tmp_path):
    with served(tmp_path / "journal.db", identify=False) as service:
        create(service, "long")
        play(service, "long", 300)
        asked, read = queries.DashboardQueries(service.engine), []

        async def counted(name, after=0, limit=1000, original=service.engine.events):
            page = await original(name, after=after, limit=limit)
            read.append(len(page))
            return page

        service.engine.events = counted
        found = service.call(asked.series("long", 300, 0))
        assert (found.shown.decisions, found.shown.version, sum(read)) == (300, 601, 601)
        play(service, "long", 50)
        read.clear()
        again = service.call(asked.series("long", 300, 0))
        assert again.shown.decisions == 300, "for a second an answer is the answer"
        time.sleep(queries._FRESH)
        later = service.call(asked.series("long", 300, 0))
        assert (later.shown.decisions, sum(read)) == (350, 100)
        assert later.shown.all


def test_few_windows_are_kept(tmp_path):
    with served(tmp_path / "journal.db", identify=False) as service:
        asked = queries.DashboardQueries(service.engine)
        for at in range(queries.MAX_CACHED + 3):
            create(service, f"s{at}")
            service.call(asked.series(f"s{at}", 10, 0))
        assert len(asked._cached) == queries.MAX_CACHED
        assert "s0" not in asked._cached
        with pytest.raises(Exception, match="no such stream"):
            service.call(asked.series("nobody", 10, 0))
        assert "nobody" not in asked._cached


def test_health_is_what_the_agent_says(service):
    create(service, "healthy", agent="adaptive", options={})
    play(service, "healthy", 150, unpaid=50)
    found = get(service, "/v1/streams/healthy/health").json()
    said = service.call(service.engine.health("healthy"))
    assert found["notes"] == list(said.notes)
    assert not found["ok"]
    assert found["facts"]["arms"] == 3
