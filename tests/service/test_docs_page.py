"""The page at /docs needs no other sites, and every curl command on it works."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import httpx
import pytest
from service.served import Served, run_here, serving

from halfseen.service.docs_page import docs_page


def commands(text: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)]


def run(command: str, folder: Path, token: str = "") -> httpx.Response:
    """Send the request that a curl command sends."""
    words = shlex.split(command.replace("\\\n", " ").replace("$TOKEN", token))
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
            assert not url, command
            url = word
    answer = httpx.request(
        method or ("GET" if body is None else "POST"), url, content=body, headers=headers, timeout=60
    )
    if out is not None:
        out.write_bytes(answer.content)
    return answer


def run_all(url: str, folder: Path, token: str = "") -> int:
    """Run all commands in order. The import is sent to a new service. Return the number of commands."""
    found = commands(httpx.get(url + "/docs").text)
    decision = ""
    for command in found:
        if "--data-binary" in command:
            (folder / "new").mkdir()
            with serving(folder / "new", "--no-auth") as other:
                reply = run(command.replace(url, other.url), folder, token)
        else:
            reply = run(command.replace('"ID"', f'"{decision}"'), folder, token)
        assert reply.is_success, (command, reply.text)
        if command.startswith("curl") and "/decisions" in command:
            body = reply.json()
            decision = body["results"][0]["id"] if "results" in body else body["id"]
        assert '"error"' not in reply.text, (command, reply.text)  # in a row of a batch
    return len(found)


def test_every_command_works_without_changes(service: Served, http: httpx.Client, tmp_path: Path) -> None:
    described = http.get("/openapi.json").json()["paths"]
    assert run_all(service.url, tmp_path) == sum(map(len, described.values())) >= 20


def test_the_commands_contain_a_token_if_tokens_are_required(tmp_path: Path) -> None:
    secret = run_here(tmp_path, "token", "create", "--scope", "admin").stdout.strip()
    with serving(tmp_path) as service:
        assert run_all(service.url, tmp_path, secret) >= 20


def test_the_page_has_no_scripts_and_loads_nothing_from_other_sites(service: Served, http: httpx.Client) -> None:
    text = http.get("/docs").text
    for route in ("/v1/streams/{name}/decisions", "/v1/streams/{name}/rewards", "/v1/streams"):
        assert route in text
    assert "<script" not in text
    assert "style=" not in text
    assert "//" not in text.replace(service.url, "")  # no other URLs
    assert http.get("/docs.css").headers["content-type"].startswith("text/css")


@pytest.mark.parametrize("host", ["", "x; rm -rf ~", "$(id)", "<b>", "a b", "'", "a:b"])
def test_a_malicious_host_does_not_appear_in_the_commands(http: httpx.Client, host: str) -> None:
    description = http.get("/openapi.json").json()
    for command in commands(docs_page(description, host, tokens=False)):
        assert command.split()[1 if "-X" not in command else 3].startswith("http://127.0.0.1:8400/")
