"""The status page as bytes: what it may load, and how data may reach it. How it looks is for a browser."""

import re

from shoal.console import page

PAGE = page().decode()


def test_the_page_loads_nothing_from_anywhere_else() -> None:
    named = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", PAGE)
    assert named == ["data:,", "status", "metrics", "v1/models"]
    assert re.findall(r"https?:|@import|\burl\(|//[a-z]+\.", PAGE) == []


def test_the_page_asks_only_for_status() -> None:
    assert re.findall(r'\bget\("([^"]*)"\)', PAGE) == ["status"]
    assert PAGE.count("fetch(") == 1


def test_data_reaches_the_page_as_text_only() -> None:
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", PAGE) == []
