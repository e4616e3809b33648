"""Photographs the demo's report for docs/report.md: report.png (answer), report-whom.png (heat
map), report-one.png (one device).

python docs/draw_report.py      needs chromium, chromedriver and the package selenium (tools/browser
installs the first two)
"""

import io
import os
import tempfile
from pathlib import Path

from matplotlib import image
from selenium import webdriver

from persfl.cli import main as persfl

HERE = Path(__file__).parent
WIDTH = 1100
CITY = "Austin"


def opened(page: Path) -> webdriver.Chrome:
    """The page in a browser without a window, light colours."""
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        f"--window-size={WIDTH},900",
        "--force-color-profile=srgb",
    ):
        options.add_argument(argument)
    browser = webdriver.Chrome(
        options=options, service=webdriver.ChromeService("/usr/bin/chromedriver")
    )
    browser.get(page.as_uri())
    browser.execute_script(
        "document.getElementById('name').value = arguments[0]; document.querySelector('#choose"
        " button').click()",
        CITY,
    )
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.set_window_size(WIDTH, height + 200)
    browser.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    return browser


def cut(browser: webdriver.Chrome, name: str, first: str, last: str) -> None:
    """The part of the page from the top of one element to the bottom of another."""
    ask = (
        "return document.querySelector(arguments[0]).getBoundingClientRect()[arguments[1]] +"
        " window.scrollY"
    )
    top, bottom = (
        int(browser.execute_script(ask, *which))
        for which in ((first, "top"), (last, "bottom"))
    )
    whole = image.imread(io.BytesIO(browser.get_screenshot_as_png()))
    image.imsave(HERE / name, whole[max(0, top - 14) : bottom + 14, :WIDTH])


def main() -> None:
    """Run the demo in an empty folder and photograph its report."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        persfl(["demo"])
        browser = opened(Path(folder) / "persfl-demo" / "run" / "report.html")
        try:
            cut(browser, "report.png", "header.top", "#groups")
            cut(browser, "report-whom.png", "#whom", "#whom")
            cut(browser, "report-one.png", "#one", "#one")
        finally:
            browser.quit()
            os.chdir(HERE)


if __name__ == "__main__":
    main()
