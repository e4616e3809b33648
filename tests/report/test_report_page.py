"""The HTML report in a real browser: headless Chromium, driven by selenium.

`tools/browser` installs both on Debian, and the two families of fonts that the layout is tried in.
"""

import copy
import functools
import os
import shutil
import stat
import time
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import report_example

from persfl import PersonalizedRegressor
from persfl.datasets import load_housing
from persfl.methods import Paper
from persfl.report import info
from persfl.report.about_run import about_html
from persfl.report.federation_page import write_federation
from persfl.report.html import embedded, write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
REQUIRED = os.environ.get("PERSFL_BROWSER") == "required"
FLAGS = """
    --headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run
    --disable-background-networking
    --disable-component-update --disable-sync --window-size=1200,900
"""
# Tells of alerts, and of what is written on a canvas: its text, where it begins and where it ends.
WATCHING = """
    window.alerts = 0;
    window.alert = () => { window.alerts += 1; };
    const pen = CanvasRenderingContext2D.prototype, { fillText, clearRect } = pen;
    pen.clearRect = function (...box) { this.canvas.written = []; clearRect.apply(this, box); };
    pen.fillText = function (text, x, y) {
        const wide = this.measureText(text).width, from = this.textAlign === "right" ? x - wide : x;
        const place = this.getTransform();
        const ends = [from, from + wide].map(each => place.transformPoint({ x: each, y }).x);
        (this.canvas.written ||= []).push([text, Math.min(...ends), Math.max(...ends)]);
        fillText.call(this, text, x, y);
    };
"""
LAYOUT = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")
WIDE, NARROW = "DejaVu Sans", "Liberation Sans"
PHONE, LAPTOPS = 390, (1024, 1100, 1280)
A4 = 673  # what the margins leave of a sheet
HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--",
    "&lt;b&gt; {{data}} 100%",
    "0",
    "x" * 400,
]


@functools.cache
def _example_info(**chosen):
    return report_example.example_info(**chosen)


def example_info(**chosen):
    """A report's numbers, made up once for all tests; each may change its own copy."""
    return copy.deepcopy(_example_info(**chosen))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if not (CHROMIUM and DRIVER):
        (pytest.fail if REQUIRED else pytest.skip)(
            "no chromium or no chromedriver: tools/browser installs them"
        )
    if not REQUIRED:
        pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        *FLAGS.split(),
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": WATCHING}
    )
    driver.execute_cdp_cmd("Performance.enable", {})
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """A function that writes a report and opens it; at the end the console must be clean and
    nothing fetched.
    """

    def opening(info, hash="", write=write_report):
        page = write(info, tmp_path / "report.html")
        browser.get("about:blank")
        browser.get(page.as_uri() + hash)
        if write is write_report:
            assert (
                browser.execute_script("return document.documentElement.dataset.ready")
                == "yes"
            )
        return Page(browser, page)

    yield opening
    assert [
        entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"
    ] == []
    assert (
        browser.execute_script("return performance.getEntriesByType('resource').length")
        == 0
    )
    assert browser.execute_script("return window.alerts") == 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


class Page:
    def __init__(self, driver, path):
        self.driver, self.path = driver, path

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def becomes(self, code, value):
        """Whether a script says so, some frames later."""
        for _ in range(100):
            if self.js(code) == value:
                return True
            time.sleep(0.05)
        return False

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.js(
            "return document.querySelector(arguments[0]).textContent", selector
        )

    def data(self, selector):
        """The data attributes of every element that fits."""
        return self.js(
            "return [...document.querySelectorAll(arguments[0])].map(e => ({...e.dataset}))",
            selector,
        )

    def device(self):
        return int(self.data("#device-name")[0]["index"])

    def keys(self, selector, *keys):
        self.one(selector).send_keys(*keys)

    def background(self):
        return self.js("return getComputedStyle(document.body).backgroundColor")

    def emulate(self, media="", scheme="light"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": [feature]}
        )

    def resize(self, width, bars=True):
        """A window, whose bar to scroll it down takes some of the width, or paper without."""
        size = {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": not bars,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def write_in(self, family):
        """Another font, as if there were no other. It is drawn anew when the width changes."""
        self.js("document.body.style.fontFamily = JSON.stringify(arguments[0])", family)

    def wrong(self, width, bars=True):
        """What is wrong with the layout at this width."""
        self.resize(width, bars)
        return self.driver.execute_async_script(LAYOUT, width)


def plain(text):
    """As it was written, before numbers were tied to their units."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def numbers(row, *names):
    return [float(row[name]) if name in row else None for name in names]


def keyboard():
    from selenium.webdriver.common.keys import Keys

    return Keys


@pytest.mark.parametrize("devices", [3, 40])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_numbers_on_the_page_are_those_of_info(opened, devices, task):
    info = example_info(devices=devices, task=task)
    page = opened(info)
    worth, ids = info["worth"], info["devices"]["ids"]
    assert page.text("h1") == info["title"] == page.driver.title
    assert page.text(".asked") == info["asked"]
    told = worth["headline"]
    assert plain(page.text("#verdict")) == told["found"]
    for name in ("advice", "how", "alone"):
        assert plain(page.text(f"#{name}")) == told[name]
    lowest = min(worth["arms"], key=lambda arm: arm["error"])["key"]
    marked = [row["arm"] for row in page.data("[data-arm]") if "lowest" in row]
    assert marked == [lowest]
    assert plain(page.text(".callout")) == info["notes"][0]
    for row, arm in zip(page.data("[data-arm]"), worth["arms"], strict=True):
        names = ("error", "median", "gain", "low", "high")
        assert (row["arm"], *numbers(row, *names)) == (
            arm["key"],
            *(arm[name] for name in names),
        )
    assert ("mistakes" in page.text("#arms thead")) == (task == "classification")
    for row, group in zip(page.data("[data-group]"), worth["groups"], strict=True):
        assert (row["group"], *numbers(row, "gain", "low", "high")) == tuple(
            group[k] for k in ("name", "gain", "low", "high")
        )
    seen = page.data("#device-rows tr")
    assert len(seen) == min(25, devices)
    for row in seen:
        i = int(row["index"])
        assert row["device"] == ids[i]
        assert numbers(row, "rows", "held", "answered") == [
            info["devices"]["rows"][i],
            info["devices"]["held"][i],
            info["help"]["answered"][i],
        ]
        names = ("own", "personal", "gain", "low", "high")
        assert numbers(row, *names) == [worth["device"][name][i] for name in names]
        assert row.get("says") == worth["device"]["says"][i]
    chosen = page.device()
    for row, peer in zip(
        page.data("#helpers tbody tr"), info["help"]["top"][chosen], strict=True
    ):
        assert row["peer"] == ids[peer[0]]
        assert (
            numbers(
                row,
                "asked",
                "adopted",
                "share",
                "reward",
                "low",
                "high",
                "verdict",
                "alike",
            )
            == peer[1:]
        )
    counted = {
        row["kind"]: int(row["count"]) for row in page.data("#gain-figure [data-kind]")
    }
    assert counted.get("lower", 0) == worth["device"]["says"].count("helps here")
    # to one device it is never said that asking hurts
    assert not set(counted) - {"lower", "same", "unknown"}
    assert sum(counted.values()) == devices
    assert page.text("#method") == info["method"]
    assert [row["setting"] for row in page.data("[data-setting]")] == [
        name for name, *_ in info["settings"]
    ]
    assert all(line in page.text("#privacy-list") for line in info["privacy"])
    assert f"persfl {info['version']}" in page.text("footer")


def test_two_thousand_devices_stay_small_and_quick(opened):
    page = opened(example_info(devices=2000, blend=True))
    assert page.path.stat().st_size < 5_000_000
    measured = page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    done = {each["name"]: each["value"] for each in measured}
    # no more work than with 26 devices, where it is 10
    assert 0 < done["LayoutCount"] < 40
    assert page.js("return document.getElementsByTagName('*').length") < 6000
    assert "each cell stands for several devices" in page.text("#whom-lead")
    assert len(page.data("#device-rows tr")) == 25
    page.js("document.getElementById('device-on').click()")
    assert page.text("#device-span") == "26 to 50 of 2,000"
    strip = page.one("#questions-figure .strip")
    strip.send_keys(keyboard().END)
    assert strip.get_attribute("aria-valuenow") == strip.get_attribute("aria-valuemax")
    last = strip.get_attribute("aria-valuetext").split(",")[0]
    strip.send_keys(keyboard().ENTER)
    assert page.text("#device-name") == last


def test_a_large_fleet_shows_how_gains_spread_and_finds_devices(opened):
    info = example_info(devices=200)
    page = opened(info)
    gains = [gain for gain in info["worth"]["device"]["gain"] if gain is not None]
    bars = page.data("#gain-figure [data-bin]")
    assert sum(int(bar["many"]) for bar in bars) == len(gains)
    middle = float(page.data("#gain-figure dd")[1]["gain"])
    assert middle == pytest.approx(np.median(gains), rel=1e-12)
    most = max(bars, key=lambda bar: int(bar["many"]))
    press = "document.querySelector(`[data-bin='${arguments[0]}']`).dispatchEvent("
    page.js(press + "new MouseEvent('click'))", most["bin"])
    assert page.text("#device-span").endswith(f"of {most['many']}")
    shown = [float(row["gain"]) for row in page.data("#device-rows tr")]
    assert max(shown) - min(shown) <= 0.05
    page.js("document.querySelector('#device-only button').click()")
    assert page.text("#device-span").endswith("of 200")
    page.keys("#device-find", "WACO")
    found = [row["device"] for row in page.data("#device-rows tr")]
    there = [name for name in info["devices"]["ids"] if "Waco" in name]
    assert sorted(found) == sorted(there)
    page.keys("#device-find", "zzz")
    assert page.text("#device-span") == "No device is called so."


def test_contents_stay_in_sight_and_follow(opened):
    page = opened(example_info(devices=3))
    place = "return getComputedStyle(document.querySelector('nav')).position"
    current = (
        "return [...document.querySelectorAll('nav [aria-current]')].map(e => e.hash)"
    )
    back = "return document.querySelector('.back').checkVisibility()"
    for width, sticks in ((1280, True), (1024, True), (PHONE, False)):
        page.resize(width)
        assert (page.js(place) == "sticky") == sticks
        assert page.becomes(back, False)
        page.js("scrollTo(0, document.body.scrollHeight)")
        assert page.becomes(back, not sticks)
        page.js("scrollTo(0, 0)")
    page.resize(1280)
    wide = "return document.querySelector('main').getBoundingClientRect().width"
    assert page.js(wide) > 0.75 * 1280
    page.js("document.documentElement.style.scrollBehavior = 'auto'")
    page.js("document.getElementById('whom').scrollIntoView()")
    deadline = time.monotonic() + 5
    while page.js(current) != ["#whom"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert page.js(current) == ["#whom"]


def test_nothing_held_back(opened):
    page = opened(example_info(devices=40, worth=False))
    assert "cannot say whether learning together is worth it" in page.text("#verdict")
    assert "no gain was measured" in page.text("#gain-lead")
    assert [row["column"] for row in page.data("#devices th[data-column]")] == [
        "id",
        "rows",
        "answered",
    ]
    assert page.data("#helpers tbody tr")


def test_missing_values_and_nobody_asked(opened):
    info = example_info(devices=3)
    info["notes"], info["privacy"], info["settings"], info["worth"]["groups"] = (
        [],
        [],
        [],
        [],
    )
    for key in info["worth"]["device"]:
        info["worth"]["device"][key] = [None] * 3
    info["help"] |= {
        "top": [[], [[0, 4, 0.0, 0.0, None, None, None, 2, 0.5]], []],
        "met": [0, 1, 0],
        "answered": [4, 0, 0],
    }
    info["help"]["matrix"]["values"] = [[0.0] * 3] * 3
    info["loss"]["device"] = [[None] * len(info["loss"]["rounds"])] * 3
    info["loss"]["fleet"]["low"][0] = float("nan")
    page = opened(info)
    assert "It asked nobody" in page.text("#device")
    page.js("document.getElementById('next').click()")
    assert page.text("#helpers tbody tr .gain") == "\u2013"
    assert page.text("#device-rows tr td:nth-of-type(5)") == "\u2013"


def test_one_round_is_no_course_of_the_loss(opened):
    info = example_info(devices=3)
    links = "[...document.querySelectorAll('#contents a')].map(a => a.hash)"
    page = opened(info)
    assert "#loss" in page.js(f"return {links}")
    assert "Its loss" in page.text("#device")
    loss = info["loss"]
    loss["rounds"] = loss["rounds"][:1]
    loss["device"] = [values[:1] for values in loss["device"]]
    loss["fleet"] = {name: values[:1] for name, values in loss["fleet"].items()}
    page = opened(info)
    assert "#loss" not in page.js(f"return {links}")
    assert not page.js("return document.querySelectorAll('#loss').length")
    assert "Its loss" not in page.text("#device")


def test_one_device_is_told_three_answers(opened):
    info = example_info(devices=40)
    info["help"]["like"][0] = [7, 3, 5]
    info["worth"]["device"]["says"][0] = "helps here"
    page = opened(info)
    answers = [row["answer"] for row in page.data("#device .answers dd")]
    assert answers == ["worth", "like", "depends"]
    ids = info["devices"]["ids"]
    said = plain(page.text("[data-answer=like]"))
    assert said.startswith(f"{ids[3]}, {ids[5]} and 5 more: of these at most one in")
    assert page.text("[data-answer=worth]") == "helps here"
    told = plain(page.text("[data-answer=depends]"))
    assert told == plain(info["depends"]["device"])
    info["help"] |= {"kinds": False, "said": "No kinds found."}
    info["depends"] = None
    page = opened(info)
    assert page.text("[data-answer=like]") == "No kinds found."
    assert "persfl helpers RUN --prove" in page.text("[data-answer=depends]")


def test_a_device_is_chosen_by_typing(opened):
    info = example_info(devices=40)
    page = opened(info)
    ids = info["devices"]["ids"]
    page.keys(
        "#name", keyboard().CONTROL + "a", keyboard().NULL, ids[17], keyboard().ENTER
    )
    assert page.device() == 17
    assert page.js("return location.hash") == "#device=" + quote(ids[17])
    page.keys(
        "#name",
        keyboard().CONTROL + "a",
        keyboard().NULL,
        ids[30].lower(),
        keyboard().ENTER,
    )
    assert page.device() == 30
    page.keys(
        "#name", keyboard().CONTROL + "a", keyboard().NULL, "Atlantis", keyboard().ENTER
    )
    assert page.text("#name-problem") == "No city is called \u201cAtlantis\u201d."
    assert page.device() == 30
    page.js("document.getElementById('next').click()")
    assert (page.device(), page.text("#name-problem")) == (31, "")
    page.js("document.querySelector('#helpers tbody tr .link').click()")
    assert page.device() == info["help"]["top"][31][0][0]
    assert opened(info, "#device=" + quote(ids[9])).device() == 9


def test_what_models_are_made_of(opened):
    info = example_info(devices=26, blend=True)
    made, ids = info["made_of"], info["devices"]["ids"]
    page = opened(info, "#device=Denton")
    bar = "[r.dataset.index, r.querySelector('.makeup').dataset.made]"
    bars = page.js(
        f"return [...document.querySelectorAll('#device-rows tr')].map(r => {bar})"
    )
    assert len(bars) == 26
    for i, shares in bars:
        assert [float(share) for share in shares.split()] == pytest.approx(
            made["shares"][int(i)], rel=1e-4
        )
    wide = page.js(
        "return [...document.querySelectorAll('#device .makeup rect')].map(r =>"
        " r.getBoundingClientRect().width)"
    )
    assert wide == pytest.approx(
        [440 * share for share in made["shares"][page.device()]], abs=0.1
    )
    named = page.data("#near [data-peer]")
    assert [row["peer"] for row in named] == [
        ids[j] for j, _ in made["near"][page.device()]
    ]
    assert [float(row["share"]) for row in named] == pytest.approx(
        [share for _, share in made["near"][page.device()]], rel=1e-4
    )
    page.js("document.querySelector('#near .link').click()")
    assert page.text("#device-name") == named[0]["peer"]
    assert "hurts" not in page.text("#gain")  # of a device as a whole it is never said


def long_names():
    """Sentences with blanks, and identifiers without; what tells them apart stands at the end."""
    info = example_info(devices=26, blend=True)
    ids = info["devices"]["ids"]
    for i in range(0, 26, 3):
        ids[i] = (
            f"North-Western Regional Hospital of Saint Bartholomew, second floor, ward {i}"
        )
    for i in range(1, 26, 3):
        ids[i] = f"{'abcdef0123456789' * 3}-sensor-{i}"
    ids[2] = "\U0001f600" * 50
    ids[5] = "x" * 400
    info["worth"]["groups"][0]["name"] = ids[1]
    info["worth"]["groups"][1]["name"] = ids[0]
    info["help"]["matrix"]["names"] = [
        ids[each[0]] for each in info["help"]["matrix"]["devices"]
    ]
    return info


def in_a_federation():
    """What a federated run adds to a report: long notes, and settings without a place to break."""
    info = example_info(devices=8, blend=True)
    info["notes"] += [
        "4 of 8 devices could not be told what came out (5 % of 88 questions). " * 2
    ]
    info["method"] = (
        "In the mean a model is 12 % own rows, 60 % fleet and 28 % neighbours. " * 3
    )
    estimator = f"GradientBoosting({'parameter=0.123456789,' * 8})"
    info["settings"].append(["estimator", estimator, "what a model is"])
    return info


REPORTS = {
    "few": lambda: example_info(devices=3),
    "sixty, classes": lambda: example_info(
        devices=60, task="classification", blend=True
    ),
    "five hundred": lambda: example_info(
        devices=500, task="classification", blend=True
    ),
    "long names": long_names,
    "federation": in_a_federation,
}


@pytest.fixture(scope="session")
def fonts(browser):
    """Both families, as the browser sees them: it replaces a missing one without a word."""
    browser.get("about:blank")
    code = """
        const pen = document.createElement("canvas").getContext("2d");
        const wide = family => {
            pen.font = `20px ${family}`;
            return pen.measureText("personalized error, 0.123 %").width;
        };
        return arguments[0].map(family => wide(`"${family}", monospace`)).concat(wide("monospace"));
    """
    wide, narrow, none = browser.execute_script(code, [WIDE, NARROW])
    if none in (wide, narrow):
        stop = pytest.fail if REQUIRED else pytest.skip
        stop(f"no {WIDE} or no {NARROW}: tools/browser installs them")
    assert wide > 1.1 * narrow
    return WIDE, NARROW


@pytest.mark.parametrize("report", REPORTS)
def test_everything_fits(opened, fonts, report):
    """Whatever font and width: nothing is cut, nothing lies over another, what scrolls says so."""
    page = opened(REPORTS[report]())
    for family in fonts:
        page.write_in(family)
        for width in (PHONE, *LAPTOPS):
            assert (family, width, page.wrong(width)) == (family, width, [])
            tables = page.js(
                "return document.querySelectorAll('table:not(.cards)').length"
            )
            assert (tables == 0) if width == PHONE else (tables >= 4)
            # long ones may need cards on a laptop
            if report != "long names" and width != PHONE:
                assert page.js("return document.querySelectorAll('.cards').length") == 0
    if report == "five hundred":  # its 200 printed rows are like those of the others
        return
    page.write_in(WIDE)
    page.emulate(media="print")
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert page.wrong(A4, bars=False) == []


def test_long_names_break_after_their_marks(opened):
    info = example_info(devices=8)
    info["devices"]["ids"][2] = "South_and_West_of_Iowa"
    page = opened(info)
    code = "return [...document.querySelectorAll('tbody .who .link')].map(e => e.innerHTML)"
    assert "South_<wbr>and_<wbr>West_<wbr>of_<wbr>Iowa" in page.js(code)


@pytest.mark.parametrize("expected", ["", "Gains are as expected with all rows."])
def test_what_gains_are_of_is_said(opened, expected):
    info = example_info(devices=8)
    info["worth"]["expected"] = expected
    page = opened(info)
    assert ("with all rows." in page.text("#arms")) == bool(expected)
    assert ("learn from all rows" in page.text("#gain-lead")) == bool(expected)


def test_names_are_cut_between_letters(opened):
    """An accent stays with its letter, and no half of a pair of surrogates is left over."""
    info = example_info(devices=26, blend=True)
    for i, name in enumerate(("e\u0301", "\U0001f600") * 13):
        info["devices"]["ids"][i] = name * 60 + str(i)
    ids = info["devices"]["ids"]
    info["help"]["matrix"]["names"] = [
        ids[each[0]] for each in info["help"]["matrix"]["devices"]
    ]
    page = opened(info)
    code = """
        const drawn = document.querySelector('canvas').written.map(([text]) => text);
        const read = document.querySelectorAll('#gain-figure text, .near .link, .key li');
        const members = document.querySelector('.members').textContent.split(', ');
        return drawn.concat([...read].map(e => e.textContent), members);
    """
    cut = [text for text in page.js(code) if "\u2026" in text]
    assert len(cut) > 60
    assert {
        text.replace("e\u0301", "").replace("\U0001f600", "")[:1] for text in cut
    } == {"\u2026"}


def federation(devices):
    """What a federation's own page is made from, with a dozen columns."""
    settings = {"rounds": 400, "messages": 123_456, "algorithm": 2, "method": "blend"}
    settings |= {
        "model": "GradientBoosting",
        "sums": True,
        "holdout": 0.25,
        "deadline": 60.0,
    }
    settings |= {"quorum": 0.5, "growth": 100.0, "reach": 100.0}
    ways = ["asked", "answered", "refused", "late", "gone", "failed", "format", "stale"]
    ways += ["guarded", "rested"]
    return {
        "devices": devices,
        "targets": devices[1:],
        "home": [],
        "rows": dict.fromkeys(devices, 12_345),
        "counts": [{"device": name} | dict.fromkeys(ways, 12_345) for name in devices],
        "ways": dict.fromkeys(ways, "what it means"),
        "notes": ["It took a while."],
    } | settings


def test_the_page_of_a_federation_fits(opened, fonts):
    names = ["north", "a" * 80, "Hospital of Saint Bartholomew, ward 7"]
    page = opened(federation(names), write=write_federation)
    cell = """
        return [...document.querySelectorAll('tbody tr:first-child td')]
            .map(e => getComputedStyle(e, '::before').content);
    """
    for family in fonts:
        page.write_in(family)
        for width in (PHONE, 768, *LAPTOPS):
            assert (family, width, page.wrong(width)) == (family, width, [])
            named = page.js(cell)
            assert named[:2] == (
                ['"rows"', '"asked"'] if width < 992 else ["none", "none"]
            )


def test_a_phone_shows_gain_interval_and_verdict(opened, fonts):
    """Of every rival, each below its name; on a laptop the same table is a table again."""
    info = example_info(devices=26, blend=True)
    page = opened(info)
    page.write_in(WIDE)
    cells = """
        return [...document.querySelectorAll('[data-arm=own] td')].map(e => {
            const box = e.getBoundingClientRect();
            const inside = box.left >= 0 && box.right <= innerWidth && box.height > 0;
            return [e.dataset.label, e.textContent, inside];
        });
    """
    assert page.wrong(PHONE) == []
    options = (
        "return [...document.querySelectorAll('#how .option')].map(e => e.textContent)"
    )
    assert page.js(options) == ["--device", "--label", "--method"]
    assert page.text("#how") == info["worth"]["headline"]["how"]
    told = {name: text for name, text, inside in page.js(cells) if inside}
    own = next(arm for arm in info["worth"]["arms"] if arm["key"] == "own")
    assert told["removed"] == f"{100 * own['gain']:.0f}\u00a0%"
    low, high = (f"{100 * own[end]:.0f}\u00a0%" for end in ("low", "high"))
    assert told["95\u00a0% interval"] == f"{low} to {high}"
    assert told["personalized is"] == own["is"]
    roles = "return [...document.querySelectorAll('#arms [role]')].map(e => e.getAttribute('role'))"
    assert set(page.js(roles)) == {
        "table",
        "rowgroup",
        "row",
        "columnheader",
        "rowheader",
        "cell",
    }
    page.js("document.querySelector('#devices th[data-column=rows] button').click()")
    assert (
        page.js("return document.querySelector('#devices table').className") == "cards"
    )
    assert page.data("#device-rows tr")[0]["rows"] == str(max(info["devices"]["rows"]))
    assert page.wrong(1100) == []
    assert page.js("return document.querySelectorAll('.cards').length") == 0


def test_larger_letters_alone_turn_a_table_into_cards(opened, fonts):
    page = opened(example_info(devices=26, blend=True))
    page.write_in(NARROW)
    assert page.wrong(1100) == []
    page.js(
        "document.querySelectorAll('table').forEach(e => { e.style.fontSize = '32px'; })"
    )
    assert page.wrong(1100) == []
    assert page.js("return document.querySelector('#helpers').className") == "cards"


_STYLE = "document.querySelector('{}').style.cssText = '{}'"
SPOILED = {
    "the page scrolls sideways": _STYLE.format("h1", "width: 3000px"),
    "wider than its place: p": _STYLE.format(".callout", "width: 20px"),
    "outside the window: p": _STYLE.format(".asked", "margin-left: -50px"),
    "scrolls and does not say so": "document.querySelector('.hint').remove()",
    "cut: button.link": _STYLE.format("th .link", "display: block; height: 5px"),
    "outside its picture": "document.querySelector('#gain-figure text').setAttribute('x', -300)",
    "touches": (
        """
        document.querySelectorAll('#gain-figure text').forEach(e => e.setAttribute('x', 90));
    """
    ),
    "outside its map": "document.querySelector('canvas').written[3][1] = -20",
    "a number apart from its unit": (
        """
        document.querySelector('.asked').textContent = 'about 10 % of it';
    """
    ),
    "a word is broken: dt": _STYLE.format(".about dt", "width: 1em"),
}


def test_the_layout_test_can_fail(opened, fonts):
    """Each way in which a page can be wrong, brought about on a page that is right."""
    page = opened(example_info(devices=60))
    page.write_in(WIDE)
    assert page.wrong(PHONE) == []
    assert page.js("return document.querySelector('.scroll').tabIndex") == 0
    for sentence, spoil in SPOILED.items():
        page.js(spoil)
        wrong = page.wrong(PHONE)
        assert any(each.startswith(sentence) for each in wrong), (sentence, wrong)


def test_sorting_a_column(opened):
    info = example_info(devices=40, blend=True)
    page = opened(info)
    press = "document.querySelector('#devices th[data-column=' + arguments[0] + '] button').click()"
    sorts = (
        "return [...document.querySelectorAll('#devices th')].map(th =>"
        " th.getAttribute('aria-sort'))"
    )
    columns = [row["column"] for row in page.data("#devices th[data-column]")]
    assert columns == [
        "id",
        "made",
        "rows",
        "own",
        "personal",
        "gain",
        "says",
        "answered",
    ]
    for column in columns:
        page.js(press, column)
        first = page.data("#device-rows tr")
        assert sum(state is not None for state in page.js(sorts)) == 1
        assert page.js(sorts)[columns.index(column)] in ("ascending", "descending")
        page.js(press, column)
        assert page.data("#device-rows tr") != first
    page.js(press, "rows")
    rows = [int(row["rows"]) for row in page.data("#device-rows tr")]
    assert rows == sorted(info["devices"]["rows"], reverse=True)[:25]
    page.js("document.querySelector('#device-rows tr').click()")
    assert page.device() == int(page.data("#device-rows tr")[0]["index"])


def test_the_heat_map_by_keyboard(opened):
    info = example_info(devices=40)
    matrix, ids = info["help"]["matrix"], info["devices"]["ids"]
    page = opened(info)
    keys = keyboard()
    page.keys(
        "#heat canvas",
        keys.ARROW_DOWN,
        keys.ARROW_DOWN,
        keys.ARROW_RIGHT,
        keys.ARROW_RIGHT,
        keys.ARROW_LEFT,
    )
    row, column = (
        int(page.data("#heat canvas")[0][name]) for name in ("row", "column")
    )
    assert (row, column) == (2, 2)
    assert "does not ask itself" in page.text("#live")
    page.keys("#heat canvas", keys.ARROW_RIGHT)
    said = page.text("#live")
    assert matrix["names"][2] in said
    assert matrix["names"][3] in said
    share = 100 * matrix["values"][2][3]
    assert f"{share:.{1 if 0 < share < 9.95 else 0}f}\u00a0%" in said
    page.keys("#heat canvas", keys.ENTER)
    assert page.text("#device-name") == ids[matrix["devices"][2][0]]


def test_who_is_missed(opened):
    info = example_info(devices=8)
    page = opened(info)
    assert "Without the 3 devices named for each" in page.text("#depends-said")
    rises = "return [...document.querySelectorAll('#depends tr[data-rise]')].map("
    rises += "row => row.dataset.rise)"
    assert page.js(rises) == ["0.17", "0.01", "0.05", "0.01", "-0.02"]
    info["depends"] = info["missed"] = None
    page = opened(info)
    assert "was not measured" in page.text("#depends-lead")
    assert page.js(rises) == []


def test_nobody_asked_is_said_instead_of_an_empty_map(opened):
    info = example_info(devices=40)
    info["help"] |= {"met": [0] * 40, "answered": [0] * 40, "top": [[]] * 40}
    info["depends"] = info["missed"] = None
    page = opened(info)
    for name in ("whom-lead", "depends-lead", "questions-lead"):
        assert page.text(f"#{name}").startswith("Nobody was asked")
    assert page.js("return document.querySelectorAll('canvas, .strip').length") == 0
    assert "answered" not in [row["column"] for row in page.data("#devices thead th")]
    assert "asked nobody" in page.text("#device")


def test_a_map_of_nothing_is_a_sentence(opened):
    info = example_info(devices=8)
    values = info["help"]["matrix"]["values"]
    info["help"]["matrix"]["values"] = [[0.0] * len(row) for row in values]
    page = opened(info)
    said = page.text("#whom-lead")
    assert said.startswith(
        "No device took anything of what a single other one answered."
    )
    assert said.endswith(info["help"]["said"])
    assert page.js("return document.querySelectorAll('#heat').length") == 0


def test_rounds_and_questions_are_counted_in_whole_numbers(opened):
    info = example_info(devices=3)
    info["help"]["answered"] = [2, 2, 2]
    info["loss"] |= {"rounds": [0, 1, 2], "device": [[3.0, 2.0, 1.0]] * 3}
    info["loss"]["fleet"] = {
        name: [3.0, 2.0, 1.0] for name in ("low", "median", "high")
    }
    page = opened(info)
    read = "return [...document.querySelectorAll(arguments[0])].map(t => t.textContent)"
    assert page.js(read, "#questions-figure .strip text")[:3] == ["0", "1", "2"]
    rounds = page.js(read, "#loss-figure svg text[text-anchor=middle]")
    assert rounds == ["0", "1", "2"]


def test_small_errors_are_counted_as_such_in_the_key(opened):
    info = example_info(devices=8)
    info["worth"]["device"]["small"] = [False] * 8
    key = "#gain-figure .key"
    assert "or both errors are small" not in opened(info).text(key)
    info["worth"]["device"]["small"][0] = True
    assert "or both errors are small" in opened(info).text(key)


def test_what_answers_give_away(opened):
    info = example_info(devices=3)
    page = opened(info)
    assert page.text("#leaks") == ""
    info["leaks_by"] = "persfl leaks run --table <b>.csv"
    page = opened(info)
    assert page.text("#leaks code") == info["leaks_by"]
    nothing = dict.fromkeys(("moments", "known", "worst", "by_model", "labels"))
    budgets = [{"epsilon": e, "found": f} | nothing for e, f in ((0, 1.0), (3.0, 0.05))]
    info["leaks"] = {"delta": 1e-5, "budgets": budgets}
    page = opened(info)
    assert page.text("#leaks thead") == "epsilonrows found"
    assert plain(page.text("#leaks tbody")) == "no protection100 %3.005.0 %"


def test_pairs_that_never_met_are_hatched(opened):
    info = example_info(devices=8)
    page = opened(info)
    assert "Hatched" not in page.text("#whom-lead")
    info["help"]["matrix"]["never"][2] = [3]
    page = opened(info)
    assert "Hatched pairs never met" in page.text("#whom-lead")
    assert info["help"]["said"] in page.text("#kinds")


def test_dark_print_and_narrow(opened):
    info = example_info(devices=40)
    info["devices"]["ids"][0] = "x" * 300
    page = opened(info)
    pixel = """
        const c = document.querySelector('#heat canvas');
        const inside = 6 * c.width / parseFloat(c.style.width);
        return [...c.getContext('2d').getImageData(c.width - inside, c.height - inside, 1, 1).data];
    """
    page.emulate()
    light, cell = page.background(), page.js(pixel)
    page.emulate(scheme="dark")
    assert page.background() != light
    deadline = time.monotonic() + 5
    # the canvas is drawn anew a moment later
    while page.js(pixel) == cell and time.monotonic() < deadline:
        time.sleep(0.02)
    assert page.js(pixel) != cell
    shown = (
        "return [...document.querySelectorAll('nav, .controls, .pager')].some(e => e.offsetParent"
        " !== null)"
    )
    assert page.js(shown)
    page.emulate(media="print", scheme="dark")
    assert page.background() == "rgb(255, 255, 255)"
    assert not page.js(shown)
    page.js("window.dispatchEvent(new Event('beforeprint'))")
    assert len(page.data("#device-rows tr")) == 40
    assert page.js(pixel) == cell
    page.js("window.dispatchEvent(new Event('afterprint'))")
    assert len(page.data("#device-rows tr")) == 25
    page.emulate()
    page.resize(PHONE)
    assert page.js("return innerWidth") == PHONE
    assert (
        page.js(
            "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
        )
        == 0
    )


def test_hostile_names_do_no_harm(opened):
    info = example_info(devices=6)
    info["devices"]["ids"] = info["help"]["matrix"]["names"] = HOSTILE
    info["title"] = info["notes"][0] = info["words"]["device"] = info["worth"][
        "headline"
    ]["found"] = HOSTILE[0]
    page = opened(info)
    assert (
        page.text("h1") == page.text("#verdict") == page.text(".callout") == HOSTILE[0]
    )
    assert page.js("return [document.images.length, document.scripts.length]") == [0, 2]
    for i, name in enumerate(HOSTILE):
        page.js("location.hash = '#device=' + encodeURIComponent(arguments[0])", name)
        page.js("window.dispatchEvent(new Event('hashchange'))")
        assert (page.device(), page.text("#device-name")) == (i, name)
    page.keys("#heat canvas", keyboard().ARROW_DOWN)
    page.keys(
        "#name",
        keyboard().CONTROL + "a",
        keyboard().NULL,
        "<img src=x>",
        keyboard().ENTER,
    )
    assert "<img src=x>" in page.text("#name-problem")


def test_structure_for_those_who_do_not_see_it(opened):
    page = opened(example_info(devices=40))
    levels = page.js(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(e => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.js(
        "return ['header', 'nav', 'main', 'footer'].every(tag => document.querySelector(tag))"
    )
    assert page.js(
        "return [...document.querySelectorAll('svg')].every(e => e.getAttribute('aria-label') ||"
        " e.ariaHidden === 'true')"
    )
    assert page.js(
        "return [...document.querySelectorAll('table')].every(e => e.caption && e.tHead)"
    )
    ids = page.js("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_text_has_contrast(opened):
    """WCAG AA: 4.5 to 1 for text, 3 to 1 for what is drawn, on every background, by day and by
    night.
    """
    page = opened(example_info(devices=3))
    code = """
        const style = getComputedStyle(document.documentElement), names = arguments[0];
        const light = name => { const hex = style.getPropertyValue(name).trim(); return [1, 3, 5].map(k => parseInt(hex.slice(k, k + 2), 16) / 255)
            .map(u => u <= 0.04045 ? u / 12.92 : ((u + 0.055) / 1.055) ** 2.4).reduce((sum, u, k) => sum + u * [0.2126, 0.7152, 0.0722][k], 0); };
        return names.map(([a, b]) => { const [u, v] = [light(a), light(b)].sort(); return (Math.max(u, v) + 0.05) / (Math.min(u, v) + 0.05); });
    """  # noqa: E501
    text = [
        (ink, on)
        for ink in ("--ink", "--quiet", "--accent", "--higher")
        for on in ("--paper", "--sheet", "--soft")
    ]
    drawn = [
        (ink, "--paper")
        for ink in ("--lower", "--same", "--higher", "--edge", "--chosen")
    ] + [("--lower", "--band")]
    drawn += [(f"--part-{k}", "--paper") for k in range(3)]
    for scheme in ("light", "dark"):
        page.emulate(scheme=scheme)
        assert min(page.js(code, [*text, ("--ink", "--higher-soft")])) >= 4.5
        assert min(page.js(code, drawn)) >= 3


def test_a_report_is_replaced_in_one_step(tmp_path, monkeypatch):
    page = write_report(example_info(devices=3), tmp_path / "report.html")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert stat.S_IMODE(page.stat().st_mode) & 0o400
    before = page.read_bytes()

    def failing(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="disk full"):
        write_report(example_info(devices=4), page)
    assert page.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_data_cannot_leave_its_element():
    text = embedded([*HOSTILE, "\u2028", "\ud800", float("inf")])
    assert not set("<>&\u2028\ud800") & set(text)
    assert text.endswith('"\\u2028","\\ud800",null]')


def test_numbers_on_the_page_are_those_of_a_fitted_model(opened):
    """From real rows to the page: the helper table and the gains are what the estimator says."""
    frame = (
        load_housing().frame.sample(frac=1.0, random_state=0).groupby("city").head(8)
    )
    features = ["year", "month", "sales", "listings", "inventory"]
    model = PersonalizedRegressor(method=Paper(rounds=40)).fit(
        frame[features], frame["log_price"], devices=frame["city"]
    )
    page = opened(info(model, device="city", label="log_price"), "#device=Waco")
    known = model.helpers_[model.helpers_["device"] == "Waco"].head(15)
    rows = page.data("[data-peer]")
    rows = [row for row in rows if "asked" in row]
    assert [row["peer"] for row in rows] == known["peer"].tolist()
    for row, true in zip(rows, known.itertuples(), strict=True):
        assert int(row["asked"]) == true.asked
        for name, value in (
            ("adopted", true.adopted),
            ("share", true.share),
            ("reward", true.reward_mean),
        ):
            assert float(row[name]) == pytest.approx(value, rel=1e-12)
        for name, value in (("low", true.reward_low), ("high", true.reward_high)):
            assert float(row[name]) == pytest.approx(value, rel=1e-12)
    assert model.worth_.fleet().says in page.text(
        "main"
    ) or "No clear difference" in page.text("main")
    true = model.worth_.device().set_index("device")["gain"]
    gains = {
        row["device"]: float(row["gain"])
        for row in page.data("[data-device][data-gain]")
    }
    for name, gain in gains.items():
        assert gain == pytest.approx(true[name], rel=1e-12)
    assert len(gains) >= 20


def test_a_page_runs_its_own_script_and_nothing_else(tmp_path):
    page = write_report(example_info(devices=3), tmp_path / "report.html")
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    ("mask", "rights"), [(0o022, 0o644), (0o077, 0o600), (0o007, 0o660)]
)
def test_a_report_has_the_rights_of_any_other_file(tmp_path, monkeypatch, mask, rights):
    """The mask belongs to the whole process: nobody may switch it, not even to read it."""
    switch = os.umask
    before = switch(mask)
    monkeypatch.setattr(os, "umask", None)
    try:
        page = write_report(example_info(devices=3), tmp_path / "report.html")
    finally:
        switch(before)
    assert stat.S_IMODE(page.stat().st_mode) == rights
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_page_opens_with_what_it_is_about():
    facts = [("Table", "<b>rows.csv"), ("Features", "x1, x2")]
    text = about_html(facts)
    assert "&lt;b&gt;rows.csv" in text
    assert "<b>" not in text
    assert about_html([]) == ""
