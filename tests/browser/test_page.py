"""The page of `kip30 serve` in a real browser: the cases O90 to O98."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from kip30 import PluginLocator
from kip30.cli._output import escaped
from kip30.codecs import BYTES
from kip30.operations import (
    USUAL_BAN_SECONDS,
    admit,
    bans,
    evict,
    pause_service,
    resume_service,
)
from kip30.operations.operator_records import this_operator
from kip30.operations.overview import LastingTimes
from kip30.runtime.bans import MOST, Ban, Bans, bans_key, encode_bans
from kip30.serving import store_details
from kip30.serving.access_token import AccessToken
from kip30.serving.page_server import PageServer
from kip30_conformance.polling import eventually, time_scale
from tests.unit.cli.shell import PATIENCE_SECONDS, Shell, ended, line_of
from tests.unit.serving.stored import OBEYS_NOBODY, Looked

from .conftest import Open
from .views import TOKEN, View, address_of

NONE = "\N{EN DASH}"
HOSTILE = (
    "\u202egnp.exe",
    "<img src=x onerror=alert(1)>",
    "a\tb\nc\x1b[31m",
    "zero\u200bwidth \u2028 \u00ad \U000e0001",
    "</td><script>alert(1)</script>",
    "__proto__",
    "'\"&amp;",
)


def at(server: PageServer) -> str:
    return address_of(server.address.port)


def elect(locator: PluginLocator, service: str, candidate: str) -> None:
    election = locator.leader_election(service)
    election.nominate(candidate, "")
    eventually(lambda: election.get_leader() is not None, what=f"{candidate} leads {service}")


def test_o90_a_store_is_shown(looked: Looked, server: PageServer, view: Open) -> None:
    elect(looked.locator, "reports", "host-1")
    looked.locator.group_membership("workers").join("worker-1", "")
    pause_service(looked.locator, "billing", reason="upgrade")
    found = view(at(server))
    found.connection("live")
    found.shows_row("reports", "host-1", "1")
    found.shows_row("workers", "1")
    found.shows_row("billing", "paused by", "until resumed: upgrade")
    expect(found.page.locator("#store")).to_contain_text("embedded")
    expect(found.page.locator("#read")).to_contain_text("ms")
    expect(found.page.locator("#problems")).to_be_hidden()


def test_o91_a_change_is_shown(looked: Looked, server: PageServer, view: Open) -> None:
    found = view(at(server))
    found.connection("live")
    elect(looked.locator, "reports", "host-1")
    found.shows_row("reports", "host-1")
    group = looked.locator.group_membership("workers")
    group.join("worker-1", "")
    found.row("workers").get_by_role("button").click()
    expect(found.page.locator("#detail")).to_contain_text("worker-1")
    group.join("worker-2", "")
    expect(found.page.locator("#detail")).to_contain_text("worker-2")
    for member in ("worker-1", "worker-2"):
        group.leave(member)
    expect(found.row("workers")).to_have_count(0)


@pytest.mark.parametrize("name", HOSTILE)
def test_o92_hostile_names_are_text(
    looked: Looked, server: PageServer, view: Open, name: str
) -> None:
    key, shown = f"k/{name.replace('/', '')}", escaped(name)
    elect(looked.locator, name, f"{name}!")
    looked.locator.group_membership(name).join(name, "")
    looked.locator.storage().set(key, f"{name}\n2")
    found = view(at(server))
    for table in ("services", "groups"):
        row = found.page.locator(f"#{table} tr")
        expect(row.locator("button")).to_have_text(shown, use_inner_text=False)
        row.locator("button").click()
        expect(found.page.locator("#detail-title")).to_contain_text(shown)
        expect(found.page.locator("#detail-body")).to_contain_text(shown)
        found.page.keyboard.press("Escape")
    found.page.locator("#keys > summary").click()
    found.page.locator("#keys summary", has_text="k/ (1)").click()
    found.page.locator("#keys li button").click()
    text = found.page.locator("#detail pre").text_content()
    assert text == f"{escaped(name)}\n2".replace(escaped("\n"), "\n")
    for element in ("img", "#services script", "#detail-body script"):
        assert found.page.locator(element).count() == 0


def test_bans_are_shown_for_as_long_as_they_stand(
    looked: Looked, server: PageServer, view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict(looked.locator, "workers", "host-1", reason="bad disk")
    found = view(at(server))
    found.shows_row("workers", "0", "host-1 until", f"by {this_operator()}: bad disk")
    found.row("workers").get_by_role("button").click()
    detail = found.page.locator("#detail")
    expect(detail).to_contain_text("It has no members.")
    expect(detail.locator("td")).to_contain_text(["host-1", "20", "@", "bad disk", "20", NONE])
    admit(looked.locator, "workers", "host-1")
    expect(found.row("workers")).to_have_count(0)
    expect(detail).not_to_contain_text("host-1")
    evict(looked.locator, "workers", "host-2")
    expect(detail).to_contain_text("host-2")
    later = time.time() + USUAL_BAN_SECONDS
    monkeypatch.setattr(bans, "time", SimpleNamespace(time=lambda: later))
    expect(found.row("workers")).to_have_count(0)


def test_a_banned_member_that_stays_is_shown(
    looked: Looked, server: PageServer, view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._live._reader, "_stays", LastingTimes(0))
    with PluginLocator().startup(looked.config | OBEYS_NOBODY) as other:
        group = other.group_membership("workers")
        group.join("host-1", "")
        evict(looked.locator, "workers", "host-1")
        found = view(at(server))
        found.shows_row("workers", "1", "host-1 until", ", still a member")
        attention = found.page.locator("#attention")
        expect(attention).to_contain_text("host-1 is banned from workers, and a member for")
        group.leave("host-1")
        expect(found.page.locator("#problems")).to_be_hidden()
        expect(found.row("workers")).not_to_contain_text("still a member")


def test_of_forty_bans_the_first_are_in_the_row_and_all_in_the_details(
    looked: Looked, server: PageServer, view: Open
) -> None:
    until = time.time() + 3600
    record = Bans(1, tuple(Ban(f"host-{one}", until, 0, "op", "r" * 200) for one in range(MOST)))
    looked.locator.storage(BYTES).put(str(bans_key("workers")), encode_bans(record))
    found = view(at(server))
    found.shows_row("workers", "host-0 until", "host-2 until", "; 37 more")
    expect(found.row("workers")).not_to_contain_text("host-3 ")
    found.page.locator("#groups-filter").focus()
    found.page.keyboard.press("Tab")
    expect(found.row("workers").get_by_role("button")).to_be_focused()
    found.page.keyboard.press("Enter")
    expect(found.page.locator("#detail tbody tr")).to_have_count(MOST)
    found.page.keyboard.press("Escape")
    expect(found.row("workers").get_by_role("button")).to_be_focused()


@pytest.mark.parametrize("name", [*HOSTILE, "\ud800", "x" * 10_000])
def test_hostile_bans_are_text(looked: Looked, server: PageServer, view: Open, name: str) -> None:
    record = Bans(1, (Ban(name, 1e300, -1e300, f"by {name}", f"why {name}"),))
    looked.locator.storage(BYTES).put(str(bans_key("workers")), encode_bans(record))
    found, shown = view(at(server)), escaped(name)
    cell = found.row("workers").locator("td").last
    text = f"{shown} until 1e+300 by by {shown}: why {shown}"
    expect(cell).to_have_text(text, use_inner_text=False)
    found.row("workers").get_by_role("button").click()
    cells = found.page.locator("#detail td")
    texts = [shown, "1e+300", f"by {shown}", f"why {shown}", "-1e+300", NONE]
    expect(cells).to_have_text(texts, use_inner_text=False)
    for element in ("img", "#groups script", "#detail-body script"):
        assert found.page.locator(element).count() == 0


def test_bans_that_cannot_be_read_are_an_error(
    looked: Looked, server: PageServer, view: Open
) -> None:
    looked.locator.storage().put("kip30.bans/workers", "<b>")
    looked.locator.group_membership("workers").join("worker-1", "")
    found = view(at(server))
    found.shows_row("workers", "1", NONE)
    expect(found.page.locator("#attention")).to_contain_text("kip30.bans/workers cannot be read")
    found.row("workers").get_by_role("button").click()
    expect(found.page.locator("#detail li")).to_have_text(["worker-1"])
    error = found.page.locator("#detail .error")
    expect(error).to_contain_text("the bans of 'workers' cannot be read")


def test_characters_are_escaped_as_on_the_command_line(server: PageServer, view: Open) -> None:
    codes = [
        *range(0x300),
        *range(0x2000, 0x2070),
        0x3000,
        0xFEFF,
        0xFFFD,
        0xE000,
        0x1F600,
        0xE0001,
    ]
    found = view(at(server))
    for code in codes:
        if chr(code).isprintable() or code not in range(0x378, 0x400):
            assert found.page.evaluate("(text) => escaped(text)", chr(code)) == escaped(chr(code))


def test_the_details_of_a_service_are_its_terms_its_line_and_its_directives(
    looked: Looked, server: PageServer, view: Open
) -> None:
    elect(looked.locator, "reports", "host-1")
    with PluginLocator().startup(looked.config) as other:
        other.leader_election("reports").nominate("host-2", "")
        pause_service(looked.locator, "reports", reason="upgrade")
        found = view(at(server))
        found.row("reports").get_by_role("button").click()
        detail = found.page.locator("#detail")
        for text in ("host-1", "host-2", "upgrade", "pause"):
            expect(detail).to_contain_text(text)
        expect(detail.locator(".term.now")).to_have_count(1)
        resume_service(looked.locator, "reports")
        expect(detail).to_contain_text("resume")
        expect(detail).not_to_contain_text("upgrade")


def test_a_value_that_is_no_text_is_shown_in_base64(
    looked: Looked, server: PageServer, view: Open
) -> None:
    looked.locator.storage(BYTES).set("k", b"\xff\0")
    found = view(at(server))
    found.page.locator("#keys > summary").click()
    found.page.locator("#keys li button").click()
    expect(found.page.locator("#detail pre")).to_have_text("/wA=")


def test_of_many_keys_those_with_a_beginning_are_shown(
    looked: Looked, server: PageServer, view: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_details, "MOST_NAMES", 3)
    for name in "abcdefg":
        looked.locator.storage().set(f"{name}1", "v")
    found = view(at(server))
    found.page.locator("#keys > summary").click()
    expect(found.page.locator("#keys li")).to_have_count(4)
    found.page.get_by_label("4 more").fill("f")
    found.page.keyboard.press("Enter")
    expect(found.page.locator("#keys li button")).to_have_text(["f1"])


def test_without_values_keys_are_no_buttons(looked: Looked, view: Open) -> None:
    looked.locator.storage().set("k", "secret")
    with PageServer(
        looked.config, "127.0.0.1:0", AccessToken(TOKEN), shows_values=False
    ) as without_values:
        found = view(at(without_values))
        found.page.locator("#keys > summary").click()
        expect(found.page.locator("#keys li")).to_contain_text("k 6 bytes")
        expect(found.page.locator("#keys li button")).to_have_count(0)


def test_o93_only_the_own_origin_is_asked(looked: Looked, server: PageServer, view: Open) -> None:
    """The fixture looks at all requests, at reports of the policy, and at the console."""
    looked.locator.storage().set("k", "v")
    found = view(at(server))
    found.connection("live")
    found.page.locator("#keys > summary").click()
    found.page.locator("#keys li button").click()
    expect(found.page.locator("#detail pre")).to_have_text("v")
    found.page.get_by_role("button", name="Check each server").click()
    expect(found.page.locator("#servers td").first).to_have_text("embedded")
    assert len(found.asked) >= 6


def test_the_policy_forbids_what_markup_would_load(server: PageServer, view: Open) -> None:
    """So the check of the fixture is known to see it."""
    found = view(at(server), says=True)
    found.page.evaluate("document.body.append(Object.assign(new Image(), {src: '/x.png'}))")
    eventually(lambda: found.page.evaluate("window.reports.length"))
    assert found.page.evaluate("window.reports.splice(0)") == ["img-src"]


def test_o94_a_store_that_is_gone_comes_back(
    looked: Looked, server: PageServer, view: Open
) -> None:
    elect(looked.locator, "reports", "host-1")
    found = view(at(server))
    found.connection("live")
    looked.away()
    found.connection("the store cannot be read since")
    found.connection("no answer")
    found.shows_row("reports", "host-1")  # the last that is known
    looked.error = None
    found.connection("live")


def test_o94_a_server_that_is_gone_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: Open
) -> None:
    shell, file = Shell(tmp_path), tmp_path / "token"
    monkeypatch.setenv("KIP30_CONFIG", str(shell.properties))
    file.write_text(TOKEN)
    file.chmod(0o600)
    shell("kv", "put", "k", "v")
    words = ("serve", "--token-file", str(file), "--listen")
    with ended(shell.start(*words, "0")) as process:
        port = int(line_of(process.stdout).split(":")[2].split("/")[0])
        found = view(address_of(port), says=True)
        found.connection("live")
        process.kill()
    found.connection("not connected since")
    with ended(shell.start(*words, str(port))) as process:
        line_of(process.stdout)
        found.connection("live")
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS * time_scale())


def test_o95_the_token_is_needed_and_leaves_the_address(
    looked: Looked, server: PageServer, view: Open
) -> None:
    elect(looked.locator, "reports", "host-1")
    found = view(at(server))
    found.connection("live")
    assert found.page.url == at(server).partition("#")[0]
    assert found.page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == [
        "",
        0,
        0,
    ]
    without = view(found.page.url)
    expect(without.page.get_by_label("Token")).to_be_focused()
    assert without.page.locator("#shown").is_hidden()
    without.page.keyboard.type(TOKEN)
    without.page.keyboard.press("Enter")
    without.shows_row("reports", "host-1")
    wrong = view(address_of(server.address.port, "another"), says=True)
    expect(wrong.page.locator("#refused")).to_contain_text("refuses this token")
    wrong.page.evaluate("(token) => { location.hash = `token=${token}` }", TOKEN)
    wrong.shows_row("reports", "host-1")


def test_o96_the_keyboard_is_enough(looked: Looked, server: PageServer, view: Open) -> None:
    elect(looked.locator, "reports", "host-1")
    looked.locator.storage().set("a/b", "value of b")
    found = view(at(server))
    found.shows_row("reports", "host-1")
    keyboard = found.page.keyboard
    keyboard.press("/")
    keyboard.type("repo")
    keyboard.press("Tab")
    expect(found.row("reports").get_by_role("button")).to_be_focused()
    keyboard.press("Enter")
    expect(found.page.locator("#detail")).to_be_focused()
    expect(found.page.locator("#detail")).to_contain_text("host-1")
    keyboard.press("Escape")
    expect(found.page.locator("#detail")).to_be_hidden()
    expect(found.row("reports").get_by_role("button")).to_be_focused()
    _tab_to(found, "#keys > summary")
    keyboard.press("Enter")
    _tab_to(found, "#keys li summary")
    keyboard.press("Enter")
    _tab_to(found, "#keys li li button")
    keyboard.press("Enter")
    expect(found.page.locator("#detail pre")).to_have_text("value of b")
    keyboard.press("Tab")
    keyboard.press("Enter")  # the button that closes it
    expect(found.page.locator("#keys li li button")).to_be_focused()
    _tab_to(found, "#check")
    keyboard.press("Enter")
    expect(found.page.locator("#servers td").first).to_have_text("embedded")


def _tab_to(found: View, selector: str) -> None:
    target = found.page.locator(selector)
    target.wait_for()
    for _ in range(20):
        if target.evaluate("(one) => one === document.activeElement"):
            return
        found.page.keyboard.press("Tab")
    raise AssertionError(f"{selector} cannot be reached")


TOUCHED = """
window.touched = new Set();
new MutationObserver((list) => list.forEach(({target}) => {
  const one = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
  touched.add(one.closest("tr"));
})).observe(services.body, {subtree: true, childList: true, characterData: true, attributes: true});
"""
"""Notes the rows that are changed."""


def test_o97_of_a_thousand_services_only_the_changed_one_is_drawn(
    looked: Looked, server: PageServer, view: Open
) -> None:
    names = [f"service-{number:04}" for number in range(1000)]
    for name in names:  # each has a line, which is quicker than an election
        looked.locator.group_membership(f"kip30.candidates/{name}").join("place", "")
    found = view(at(server))
    expect(found.page.locator("#services-count")).to_have_text("1000")
    expect(found.page.locator("#services button")).to_have_text(names, use_inner_text=False)
    found.page.locator("#services-filter").fill("0777")
    expect(found.page.locator("#services-count")).to_have_text("1 of 1000")
    found.page.evaluate(TOUCHED)
    elect(looked.locator, "service-0777", "host-2")
    found.shows_row("service-0777", "host-2")
    assert found.page.evaluate("touched.size") == 1
    found.page.locator("#services-filter").fill("")
    expect(found.page.locator("#services-count")).to_have_text("1000")


HIDE = """
Object.defineProperty(document, "hidden", {{value: {}, configurable: true}});
document.dispatchEvent(new Event("visibilitychange"));
"""
"""What the browser does when another tab is chosen, or this one."""


def test_o98_a_page_that_is_hidden_or_closed_asks_for_nothing(
    looked: Looked, server: PageServer, view: Open
) -> None:
    assert looked.looks == 0
    found = view(at(server))
    found.connection("live")
    found.page.evaluate(HIDE.format("true"))
    _nothing_is_asked(looked, server)
    found.page.evaluate(HIDE.format("false"))
    found.connection("live")
    found.page.goto("about:blank")
    found.asked.clear()
    _nothing_is_asked(looked, server)


def test_o98_a_page_that_is_opened_in_the_background_asks_for_nothing(
    looked: Looked, server: PageServer, view: Open
) -> None:
    found = view(at(server).replace("#", "page.css#"))
    found.page.add_init_script(HIDE.format("true"))
    found.page.goto(at(server))
    expect(found.page.locator("#ask")).to_be_hidden()
    _nothing_is_asked(looked, server)
    found.page.evaluate(HIDE.format("false"))
    found.connection("live")


NO_PAUSE = """() => {
const setTimer = window.setTimeout;
window.setTimeout = (act, ms) => setTimer(act, ms === RETRY_MS ? 0 : ms);
}"""


def test_o98_a_page_whose_address_is_opened_again_remains_one_viewer(
    looked: Looked, server: PageServer, view: Open
) -> None:
    found = view(at(server))
    found.connection("live")
    found.page.evaluate(NO_PAUSE)
    found.page.evaluate("(token) => { location.hash = `token=${token}` }", TOKEN)
    elect(looked.locator, "reports", "host-1")
    found.shows_row("reports", "host-1")
    found.page.evaluate(HIDE.format("true"))
    _nothing_is_asked(looked, server)


def _nothing_is_asked(looked: Looked, server: PageServer) -> None:
    eventually(lambda: server._live.viewers == 0, within=30, what="the viewer is gone")
    before = looked.looks
    for number in range(300):  # it takes many periods
        looked.locator.storage().set("k", str(number))
    assert looked.looks <= before + 1  # one was under way
