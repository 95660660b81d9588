"""What README shows of commands on recordings is what they print."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from pgqdoctor.cli import run
from pgqdoctor.config import load_config, validate_checks
from pgqdoctor.registry import all_checks

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```\n\$ pgqdoctor ([^\n]+)\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)


def test_there_is_something_to_compare() -> None:
    assert SHOWN


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_shown_output_is_real(
    command: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    run(shlex.split(command))
    assert capsys.readouterr().out.rstrip() == output


def test_shown_settings_are_valid(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)
    assert tomllib.loads(shown)
    file = tmp_path / "pgqdoctor.toml"
    file.write_text(shown, encoding="utf-8")
    validate_checks(load_config(file), {check.id: check.limits for check in all_checks()})


def test_linked_files_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
