"""The dashboard in a real Chromium browser, and the routes that provide its data."""

import gzip
import os
import re
import time
from pathlib import Path

import httpx
import numpy as np
import pytest
from browser import browser_errors
from playwright.sync_api import expect
from service.dashboard_app import served

from halfseen.diagnostics.health import Finding, Health, Verdict
from halfseen.journal.journal import Token
from halfseen.service.dashboard import queries, routes
from halfseen.service.schemas import DecisionRequest, RewardRequest, StreamSpec

SCREENSHOTS = os.environ.get("HALFSEEN_SCREENSHOTS")  # a folder in which pictures of the pages are saved
READER = Token("1", "reader", b"", ["read"], None, 0)
ONE_STREAM = Token("2", "one", b"", ["read"], ["mine"], 0)
OPEN_DETAILS = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("dashboard") / "journal.db") as found:
        yield found


@pytest.fixture
def requested(page):
    """Collect the addresses that the page requests."""
    urls = []

    def collect(request):
        urls.append(request.url)

    page.on("request", collect)
    yield urls
    page.remove_listener("request", collect)


def create(service, name, **options):
    spec = {"observed": ["demand", "rain"], "arms": ["low", "middle", "high"], "agent": "emkf-ts", "seed": 7}
    spec["options"] = {"latent": 3, "observation_cov": 0.1} if spec["agent"] == options.get("agent", "emkf-ts") else {}
    service.call(service.engine.create_stream(StreamSpec(name=name, **(spec | options))))


def play(service, name, rounds, *, unrewarded=0, seed=0):
    """Make decisions in batches, and reward all but the first `unrewarded` decisions of each batch.

    The context rotates slowly in two dimensions. One coordinate is observed, and rewards depend on the other one.
    """
    rng, engine = np.random.default_rng(seed), service.engine
    arms = service.call(engine.stream(name)).arms
    rotation = 0.995 * np.array([[np.cos(0.1), np.sin(0.1)], [-np.sin(0.1), np.cos(0.1)]])
    x = np.array([3.0, 0.0])
    for start in range(0, rounds, 50):
        xs, requests = [], []
        for _ in range(min(50, rounds - start)):
            x = rotation @ x + 0.25 * rng.normal(size=2)
            xs.append(x)
            requests.append(
                DecisionRequest([float(x[0]) + 0.4 * rng.normal(), None if rng.random() < 0.1 else rng.normal()])
            )
        decided = service.call(engine.decide_all(name, requests))
        values = [(arms.index(one.arm) - 1) * x[1] + 0.5 * rng.normal() for one, x in zip(decided, xs, strict=True)]
        rewards = [RewardRequest(one.id, float(value)) for one, value in zip(decided, values, strict=True)]
        service.call(engine.reward_all(name, rewards[unrewarded:]))


def get(service, path, **options):
    return httpx.get(service.url + path, **options)


# ---------------------------------------------------------------------- the page


def test_new_streams_appear_and_charts_are_updated(service, page, requested):
    page.goto(service.url)
    expect(page.locator(".lead")).to_have_text("There are no streams yet.")
    assert "curl" in page.inner_text("pre")
    create(service, "prices")
    expect(page.locator(".streams a")).to_have_text("prices")  # without a reload

    page.locator(".streams a").click()
    expect(page.locator("h1")).to_have_text("prices")
    expect(page.get_by_text("There are no rewards yet")).to_be_visible()
    assert "/v1/streams/prices/rewards" in page.inner_text("body")

    play(service, "prices", 300, unrewarded=2)
    line = page.locator(".chart .scatterlayer .lines path").first
    expect(line).to_have_attribute("d", re.compile("."))
    shape = line.get_attribute("d")
    expect(page.locator(".chart .main-svg").nth(9)).to_be_attached()
    play(service, "prices", 300, unrewarded=2, seed=1)
    expect(line).not_to_have_attribute("d", shape)
    expect(page.locator(".tiles dd span").first).to_have_text("600")
    label = page.locator(".chart[role=img]").first.get_attribute("aria-label")
    assert label.startswith("Rewards: mean ")
    assert "after 576 rewards" in label
    assert browser_errors(page) == []
    assert requested
    assert all(url.startswith(service.url) for url in requested), "a request to another site"


def test_tables_contain_the_numbers_of_the_charts(service, page):
    create(service, "tables")
    play(service, "tables", 200, unrewarded=5)
    page.goto(service.url + "/#/streams/tables")
    expect(page.locator("details:not([hidden]) .scroll").nth(4)).to_be_attached()
    page.evaluate(OPEN_DETAILS)
    expect(page.locator(".card").filter(has_not=page.locator("tbody tr"))).to_have_count(0)
    sizes = page.evaluate(
        "[...document.querySelectorAll('.card')].map((card) => [card.querySelector('h2').textContent, "
        "card.querySelectorAll('tbody tr').length, card.querySelectorAll('tbody th[scope=row]').length])"
    )
    by_title = {title: (rows, row_headings) for title, rows, row_headings in sizes}
    series = get(service, "/v1/streams/tables/series").json()
    assert by_title["Rewards"][0] == len(series["rewards"]["round"])
    assert by_title["Estimated context"][0] == 200
    assert by_title["Share of each arm"][0] == len(series["arms"]["round"]) + 1
    assert by_title["Waiting for rewards"][0] == 7 + 20
    assert all(rows == row_headings > 0 for rows, row_headings in by_title.values())


def test_a_note_says_that_the_service_is_degraded(service, page, monkeypatch):
    create(service, "degraded")
    play(service, "degraded", 20)
    for path in ("", "#/streams/degraded"):
        page.goto(service.url + "/" + path)
        note = page.locator(".note[role=status]")
        expect(note).to_be_hidden()
        monkeypatch.setattr(service.engine, "degraded", "The last 3 identifications of a model failed.")
        expect(note).to_have_text("The last 3 identifications of a model failed.", timeout=15_000)
        monkeypatch.setattr(service.engine, "degraded", None)
        expect(note).to_be_hidden(timeout=15_000)


def test_a_coordinate_of_the_context_can_be_chosen(service, page):
    create(service, "coordinates")
    play(service, "coordinates", 200)
    page.goto(service.url + "/#/streams/coordinates")
    expect(page.locator("#coordinate option")).to_have_text(["demand", "rain", "hidden 1"])
    page.locator("#coordinate").select_option("2")
    expect(page.locator('[aria-label^="Estimated context: hidden 1"]')).to_be_attached()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_fits_the_screen_and_has_enough_contrast(service, open_page, tmp_path, width, dark):
    create(service, "offers")
    if service.call(service.engine.stream("offers")).decisions == 0:
        play(service, "offers", 1500, unrewarded=2)
    page = open_page(width, dark=dark)
    for path, ready in (("", page.locator(".streams a").first), ("streams/offers", page.locator(".main-svg").nth(9))):
        page.goto(f"{service.url}/#/{path}")
        expect(ready).to_be_attached()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is too wide"
        too_wide = (
            "[...document.querySelectorAll('.card, .tiles div, .main-svg, button, h1')].filter((one) => "
            "one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"
        )
        assert page.evaluate(too_wide) == []
        page_name = path.partition("/")[0] or "overview"
        file = Path(SCREENSHOTS or tmp_path) / f"dashboard-{page_name}-{width}-{'dark' if dark else 'light'}.png"
        page.wait_for_timeout(3000 if SCREENSHOTS else 300)
        page.screenshot(path=file, full_page=True)
        assert file.stat().st_size > 10_000
    lowest = page.evaluate(LOWEST_CONTRAST)
    assert lowest["ratio"] >= 4.5, lowest
    assert browser_errors(page) == []


# The lowest contrast between text and its background, in HTML and in charts. WCAG requires at least 4.5.
LOWEST_CONTRAST = """(() => {
  const channels = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => [r, g, b].map((c) => linear(c / 255))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const background = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let lowest = { ratio: 99 };
  for (const element of document.querySelectorAll('body *')) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !element.getClientRects().length || element.closest('.skip, noscript')) continue;
    const style = getComputedStyle(element);
    const text = luminance(channels(element instanceof SVGElement ? style.fill : style.color));
    const [high, low] = [text, luminance(background(element))].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < lowest.ratio) lowest = { ratio, text: element.textContent.slice(0, 60) };
  }
  return lowest;
})()"""


def test_the_page_can_be_used_with_the_keyboard(service, page):
    create(service, "keys")
    play(service, "keys", 100)
    page.goto(service.url + "/#/streams/keys")
    expect(page.locator("details:not([hidden]) summary").nth(3)).to_be_attached()
    page.evaluate("document.activeElement.blur()")
    focused = (
        "(() => { const one = document.activeElement; const style = getComputedStyle(one);"
        " return [one.textContent.trim().slice(0, 20) || one.id, style.outlineStyle, style.outlineWidth]; })()"
    )
    visited = []
    for _ in range(30):
        page.keyboard.press("Tab")
        name, outline, thickness = page.evaluate(focused)
        if not page.evaluate("document.activeElement !== document.body"):
            break
        visited.append(name)
        assert (outline, thickness) == ("solid", "3px"), f"the focus is not visible on {name}"
    assert visited[:5] == ["Skip to the content", "halfseen", "API", "Token", "Pause"]
    assert visited.count("Table") >= 4
    assert "Facts" in visited, "the keyboard focus does not reach the end of the page"

    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.evaluate("location.hash") == "#/streams/keys", "the skip link has changed the page"

    page.locator("#token-toggle").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#token")).to_be_focused()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "token-toggle"
    assert page.locator("#token-panel").is_hidden()


@pytest.mark.slow
def test_the_page_sends_no_requests_while_hidden_or_paused(service, page, requested):
    create(service, "rest")
    page.goto(service.url + "/#/streams/rest")
    expect(page.locator("#status")).to_have_text(re.compile("^Updated"))

    def count_requests(seconds, script="1"):
        requested.clear()
        page.evaluate(script)
        page.wait_for_timeout(1000 * seconds)
        return sum("/series" in url for url in requested)

    click_pause = "document.querySelector('#pause').click()"
    set_hidden = (
        "Object.defineProperty(document, 'hidden', {{ get: () => {}, configurable: true }});"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )
    assert count_requests(4.5) >= 2
    count_requests(0.3, click_pause)
    assert count_requests(4.5) == 0
    assert page.get_attribute("#pause", "aria-pressed") == "true"
    assert count_requests(1.0, click_pause) >= 1
    count_requests(0.3, set_hidden.format("true"))
    assert count_requests(4.5) == 0
    assert count_requests(1.0, set_hidden.format("false")) >= 1


def test_the_token_is_stored_in_one_tab_only(tmp_path, page, requested):
    with served(tmp_path / "journal.db", secrets={"secret": READER}, identify=False) as service:
        create(service, "guarded")
        page.goto(service.url)
        expect(page.locator("#token-panel")).to_be_visible()
        expect(page.locator("#error-text")).to_contain_text("requires a token")
        assert "guarded" not in page.inner_text("body")
        page.locator("#token").fill(" secret ")
        page.locator("#token-panel [type=submit]").click()
        expect(page.locator(".streams a")).to_have_text("guarded")
        assert page.locator("#error").is_hidden()
        assert page.evaluate("[{...sessionStorage}, {...localStorage}, document.cookie]") == [
            {"halfseen-token": "secret"}, {}, "",
        ]  # fmt: skip
        assert requested
        assert all("secret" not in url for url in requested)
        page.locator("#token-toggle").click()
        page.locator("#token-forget").click()
        expect(page.locator("#error")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_the_page_tries_again_if_the_service_does_not_answer(tmp_path, page):
    with served(tmp_path / "journal.db", identify=False) as service:
        create(service, "going")
        page.goto(service.url + "/#/streams/going")
        expect(page.locator("#status")).to_have_text(re.compile("^Updated"))
    expect(page.locator("#error-text")).to_have_text(re.compile(r"^The service does not answer\."))
    assert "Trying again in" in page.text_content("#error-text")
    assert page.text_content("h1") == "going", "the page has lost its content"


def test_the_name_of_an_unknown_stream_is_shown_as_text(service, page):
    page.goto(service.url + "/#/streams/%3Cimg%20src=x%3E")
    expect(page.locator("#error-text")).to_contain_text("There is no stream")
    assert page.text_content("h1") == "<img src=x>"
    assert page.locator("img").count() == 0


def test_the_page_of_an_unknown_stream_is_filled_when_the_stream_is_created(service, page):
    page.goto(service.url + "/#/streams/yet-to-come")
    expect(page.locator(".lead")).to_have_text("There is no stream with this name.")
    visible = page.locator(".card, .tiles").filter(visible=True)
    assert visible.count() == 0
    assert "Loading" not in page.inner_text("main")
    create(service, "yet-to-come")
    page.locator("#retry").click()
    expect(page.locator(".lead")).to_have_text("There are no decisions yet.")
    assert visible.count() == 10


def test_names_of_arms_and_features_are_shown_as_text(service, page):
    """Names may contain any characters, and plotly interprets some markup."""
    evil = '<img src=x onerror="document.title=1"><a href="javascript:alert(1)">x</a>'
    create(service, "evil", arms=[evil, "b"], observed=[evil, "y"])
    play(service, "evil", 100)
    page.goto(service.url + "/#/streams/evil")
    expect(page.locator(".main-svg").nth(9)).to_be_attached()
    page.evaluate(OPEN_DETAILS)
    page.wait_for_timeout(2500)
    assert page.title() == "evil – halfseen"
    assert page.locator("img").count() == 0
    assert evil in ",".join(page.locator(".legend").all_text_contents())
    links = (
        "[...document.querySelectorAll('a')].map((one) => one.getAttribute('href') ?? one.getAttribute('xlink:href'))"
    )
    assert all(link.startswith(("#", "/docs")) for link in page.evaluate(links))
    assert browser_errors(page) == []


# ---------------------------------------------------------------------- the routes


def test_only_static_files_are_served_with_a_strict_policy(service):
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


def test_plotly_is_cached_and_revalidated(service):
    path = "/dashboard/plotly.min.js"
    first = get(service, path, headers={"accept-encoding": "gzip"})
    assert first.headers["cache-control"] == "no-cache"
    again = get(service, path, headers={"accept-encoding": "gzip", "if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = get(service, path, headers={"accept-encoding": "identity", "if-none-match": first.headers["etag"]})
    assert other.status_code == 200
    assert other.headers["etag"] != first.headers["etag"]


def test_plotly_comes_from_its_package_and_is_compressed(service):
    compressed = get(service, "/dashboard/plotly.min.js", headers={"accept-encoding": "gzip"})
    plain = get(service, "/dashboard/plotly.min.js", headers={"accept-encoding": "identity"})
    assert compressed.content == plain.content == routes._files()["plotly.min.js"].read_bytes()
    assert compressed.headers["content-encoding"] == "gzip"
    assert int(compressed.headers["content-length"]) < 0.4 * len(plain.content)
    assert gzip.decompress(routes._compressed(routes._files()["plotly.min.js"])) == plain.content


@pytest.mark.parametrize("query", ["points=0", "points=1001", "points=x", "points=1e2", "coordinate=-1", "points=٣"])
def test_invalid_query_parameters_are_refused(service, query):
    create(service, "asked")
    reply = get(service, f"/v1/streams/asked/series?{query}")
    assert reply.status_code == 422
    assert "expected an integer from" in reply.json()["error"]["message"]


def test_an_unknown_stream_is_not_found(service):
    for end in ("series", "health"):
        reply = get(service, f"/v1/streams/nobody/{end}")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


def test_the_overview_has_pages_and_lists_only_the_streams_of_the_token(tmp_path):
    secrets = {"all": READER, "one": ONE_STREAM}
    with served(tmp_path / "journal.db", secrets=secrets, identify=False) as service:
        for name in ("mine", "other", "third"):
            create(service, name)
        play(service, "mine", 20, unrewarded=5)

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


def test_only_new_events_are_read(tmp_path):
    with served(tmp_path / "journal.db", identify=False) as service:
        create(service, "long")
        play(service, "long", 300)
        dashboard, read = queries.DashboardQueries(service.engine), []

        async def counted(name, after=0, limit=1000, original=service.engine.events):
            page = await original(name, after=after, limit=limit)
            read.append(len(page))
            return page

        service.engine.events = counted
        first = service.call(dashboard.series("long", 300, 0))
        assert (first.shown.decisions, first.shown.version, sum(read)) == (300, 601, 601)
        play(service, "long", 50)
        read.clear()
        again = service.call(dashboard.series("long", 300, 0))
        assert again.shown.decisions == 300, "the result was not cached"
        time.sleep(queries._FRESH)
        later = service.call(dashboard.series("long", 300, 0))
        assert (later.shown.decisions, sum(read)) == (350, 100)
        assert later.shown.all


def test_the_cache_is_limited(tmp_path):
    with served(tmp_path / "journal.db", identify=False) as service:
        dashboard = queries.DashboardQueries(service.engine)
        for number in range(queries.MAX_CACHED + 3):
            create(service, f"s{number}")
            service.call(dashboard.series(f"s{number}", 10, 0))
        assert len(dashboard._cached) == queries.MAX_CACHED
        assert "s0" not in dashboard._cached
        with pytest.raises(Exception, match="There is no stream 'nobody'"):
            service.call(dashboard.series("nobody", 10, 0))
        assert "nobody" not in dashboard._cached


def test_health_is_the_health_of_the_agent(service):
    create(service, "healthy", agent="adaptive", options={})
    play(service, "healthy", 150, unrewarded=50)
    reply = get(service, "/v1/streams/healthy/health").json()
    health = service.call(service.engine.health("healthy"))
    assert reply["notes"] == list(health.notes)
    assert (reply["answer"], reply["terms"]) == ("", {})  # there is no model yet
    assert not reply["ok"]
    assert reply["facts"]["arms"] == 3


def test_findings_call_the_features_by_their_names(service):
    create(service, "named", agent="adaptive", observed=["visitors", "weather"], options={})
    rng = np.random.default_rng(1)
    for t in range(200):
        weather = rng.normal() if t < 100 else 3.0
        (decided,) = service.call(service.engine.decide_all("named", [DecisionRequest([rng.normal(), weather])]))
        service.call(service.engine.reward_all("named", [RewardRequest(decided.id, rng.normal())]))
    deadline, sentences = time.monotonic() + 60.0, ""
    while "weather" not in sentences and time.monotonic() < deadline:  # another process identifies the model
        findings = service.call(service.engine.health("named")).findings
        sentences = " ".join(finding.sentence for finding in findings)
    assert "weather" in sentences
    assert "entry 1" not in sentences


def test_health_begins_with_the_answer_and_explains_terms():
    finding = Finding("spectral radius", 0.9, "0.9", "at most 1", Verdict.FINE, "the context stays bounded")
    view = queries._health_view(Health((), {}, (finding,), "Yes: filtering helps."))
    assert view.answer == "Yes: filtering helps."
    assert list(view.terms) == ["spectral radius"]
