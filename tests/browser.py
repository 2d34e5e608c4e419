"""The installed Chromium, without a window, driven by Playwright."""

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from programs import CHROMIUM

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium for the tests of one file, because `asyncio.run` fails in other tests while Playwright runs."""
    executable, sandbox = CHROMIUM.require(), os.geteuid() != 0  # the sandbox refuses to run as root
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=executable, chromium_sandbox=sandbox) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def pages_by_device(browser: Browser) -> dict[str, Page]:
    """Open the pages that the tests of one file share, because a new page has to compile Plotly again."""
    return {"desktop": browser.new_page(), "phone": browser.new_page(is_mobile=True)}


@pytest.fixture
def open_page(pages_by_device: dict[str, Page]) -> Iterator[Callable[..., Page]]:
    """Return a function that prepares an empty page. A screen narrower than 600 pixels is the screen of a phone."""

    def open_page(width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        page = pages_by_device["phone" if width < 600 else "desktop"]
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.clear_console_messages()
        page.clear_page_errors()
        return page

    yield open_page
    for page in pages_by_device.values():
        page.goto("about:blank")


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    return open_page()


def browser_errors(page: Page) -> list[str]:
    """Return the errors and warnings of the browser's console and the exceptions that no script has caught."""
    messages = [message.text for message in page.console_messages(filter="all") if message.type in ("error", "warning")]
    return messages + [str(error) for error in page.page_errors(filter="all")]
