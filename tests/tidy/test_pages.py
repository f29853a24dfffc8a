"""Generated pages are what their generator would write now."""

from __future__ import annotations

import pytest

from gateway.config_source import default_file
from gateway.docs_config import PAGE, render
from tests.tidy.source_tree import ROOT


def test_the_settings_page_is_current() -> None:
    written = (ROOT / PAGE).read_text()
    assert written == render(default_file().read_text()), "run `make docs`"


def test_a_setting_without_a_comment_cannot_be_rendered() -> None:
    with pytest.raises(ValueError, match=r"protocols.yaml:3: node.data has no comment above it"):
        render("# About.\nnode:\n  data: x\n")
