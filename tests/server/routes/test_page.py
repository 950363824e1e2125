"""The page's route: who gets it, what its files may do, and the setting that leaves it out."""

from callsmith.server.app import create_app
from callsmith.server.http.keys import hash_key
from callsmith.server.settings import Key, Settings
from tests.fakes import FakeModel
from tests.server.asking import http, says

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_a_browser_gets_the_page_and_other_clients_are_told_that_the_server_runs():
    async with http(create_app({"m": FakeModel(says("hi"))})) as asking:
        page = await asking.get("/", headers=BROWSER)
        assert (page.status_code, page.headers["content-type"], page.headers["vary"]) == (
            200,
            "text/html; charset=utf-8",
            "accept",
        )
        assert "<title>callsmith</title>" in page.text
        assert (await asking.get("/")).text == "callsmith is running"


async def test_the_page_uses_nothing_of_other_hosts_and_its_policy_lets_it_do_nothing_else():
    async with http(create_app({"m": FakeModel(says("hi"))})) as asking:
        page = await asking.get("/", headers=BROWSER)
        policy = page.headers["content-security-policy"]
        for rule in (
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'none'",
        ):
            assert rule in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert "http://" not in page.text and "https://" not in page.text


async def test_a_file_that_has_not_changed_is_not_sent_again():
    async with http(create_app({"m": FakeModel(says("hi"))})) as asking:
        first = await asking.get("/page/app.js")
        assert first.headers["content-type"] == "text/javascript; charset=utf-8"
        again = await asking.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_only_the_files_of_the_page_are_served():
    async with http(create_app({"m": FakeModel(says("hi"))})) as asking:
        for path in ("/page/nothing.js", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/__init__.py", "/page/"):
            assert (await asking.get(path)).status_code == 404


async def test_the_page_needs_no_key_and_what_it_asks_for_does():
    settings = Settings(keys={"ada": Key(hash_key("sk-ada"))})
    async with http(create_app({"m": FakeModel(says("hi"))}, settings=settings)) as asking:
        assert (await asking.get("/", headers=BROWSER)).status_code == 200
        assert (await asking.get("/page/app.js")).status_code == 200
        assert (await asking.get("/")).status_code == 401
        assert (await asking.post("/", headers=BROWSER)).status_code == 401
        assert (await asking.get("/v1/models", headers=BROWSER)).status_code == 401


async def test_the_page_can_be_left_out():
    async with http(create_app({"m": FakeModel(says("hi"))}, settings=Settings(page=False))) as asking:
        assert (await asking.get("/", headers=BROWSER)).text == "callsmith is running"
        assert (await asking.get("/page/app.js")).status_code == 404
