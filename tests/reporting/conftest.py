"""A headless Chromium that opens reports, and what it may not do meanwhile; the data that a report holds."""

import importlib.util
import json
import os
import re
import shutil
import socket

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1100,900",
)  # fmt: skip


class Browser:
    """Chromium through its driver: opens files, runs scripts, says what went wrong and what it asked for."""

    def __init__(self, chromium, chromedriver, folder):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        self.driver.set_script_timeout(60)

    def open(self, path, fragment=""):
        """Open a page, and wait until it is laid out: it unpacks its data first."""
        from selenium.webdriver.support.wait import WebDriverWait

        self.driver.get("about:blank")
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(f"file://{path}{fragment}")
        laid_out = "return document.querySelector('footer') !== null"
        WebDriverWait(self.driver, 60).until(lambda driver: driver.execute_script(laid_out))

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def press(self, selector, key):
        """A key by its name in selenium, on one element."""
        from selenium.webdriver.common.keys import Keys

        self.driver.find_element("css selector", selector).send_keys(getattr(Keys, key))

    def enter(self, name, value):
        """Write a number over what stands in a field."""
        from selenium.webdriver.common.keys import Keys

        self.driver.find_element("id", name).send_keys(Keys.CONTROL + "a", Keys.NULL, str(value) + Keys.ENTER)

    def text(self, name):
        return self.run(f"return document.getElementById('{name}').textContent")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses of what was loaded, but for what the page has in it."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:"))]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(programs) or importlib.util.find_spec("selenium") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Debian's chromium and chromium-driver, and selenium")
        pytest.skip("no Chromium with its driver here, or no selenium")
    before = socket.getdefaulttimeout()
    found = Browser(*programs, tmp_path_factory.mktemp("chromium"))
    yield found
    found.driver.quit()
    socket.setdefaulttimeout(before)


@pytest.fixture(scope="session")
def held():
    """From a page to its data."""
    return lambda page: json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
