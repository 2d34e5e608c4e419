"""The page at /docs: it stands alone, and every line of curl on it works."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import httpx
import pytest
from service.served import Served, run_command, serving

from halfseen.service.docs_page import docs_page


def lines(text: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)]


def run(line: str, folder: Path, token: str = "") -> httpx.Response:
    """What curl does with such a line."""
    words = shlex.split(line.replace("\\\n", " ").replace("$TOKEN", token))
    assert words.pop(0) == "curl"
    method, url, body, headers, out = "", "", None, {}, None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            body = words.pop(0).encode()
        elif word == "--data-binary":
            body = (folder / words.pop(0).removeprefix("@")).read_bytes()
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word == "-o":
            out = folder / words.pop(0)
        else:
            assert not url, line
            url = word
    answer = httpx.request(
        method or ("GET" if body is None else "POST"), url, content=body, headers=headers, timeout=60
    )
    if out is not None:
        out.write_bytes(answer.content)
    return answer


def play(url: str, folder: Path, token: str = "") -> int:
    """Run all lines in their order, the import against a service that is new; how many there were."""
    found = lines(httpx.get(url + "/docs").text)
    decision = ""
    for line in found:
        if "--data-binary" in line:
            (folder / "new").mkdir()
            with serving(folder / "new", "--no-auth") as other:
                answer = run(line.replace(url, other.url), folder, token)
        else:
            answer = run(line.replace('"ID"', f'"{decision}"'), folder, token)
        assert answer.is_success, (line, answer.text)
        if line.startswith("curl") and "/decisions" in line:
            told = answer.json()
            decision = told["results"][0]["id"] if "results" in told else told["id"]
        assert '"error"' not in answer.text, (line, answer.text)  # of a row
    return len(found)


def test_every_line_works_as_it_stands(service: Served, http: httpx.Client, tmp_path: Path) -> None:
    described = http.get("/openapi.json").json()["paths"]
    assert play(service.url, tmp_path) == sum(map(len, described.values())) >= 20


def test_where_tokens_are_asked_for_the_lines_have_one(tmp_path: Path) -> None:
    secret = run_command(tmp_path, "token", "create", "--scope", "admin").stdout.strip()
    with serving(tmp_path) as service:
        assert play(service.url, tmp_path, secret) >= 20


def test_it_stands_alone(service: Served, http: httpx.Client) -> None:
    text = http.get("/docs").text
    for route in ("/v1/streams/{name}/decisions", "/v1/streams/{name}/rewards", "/v1/streams"):
        assert route in text
    assert "<script" not in text
    assert "style=" not in text
    assert "//" not in text.replace(service.url, "")  # nothing from elsewhere
    assert http.get("/docs.css").headers["content-type"].startswith("text/css")


@pytest.mark.parametrize("host", ["", "x; rm -rf ~", "$(id)", "<b>", "a b", "'", "a:b"])
def test_a_strange_host_is_not_put_into_a_shell(http: httpx.Client, host: str) -> None:
    description = http.get("/openapi.json").json()
    for line in lines(docs_page(description, host, tokens=False)):
        assert line.split()[1 if "-X" not in line else 3].startswith("http://127.0.0.1:8400/")
