"""tools/packages.py: what uv is told of pip's settings, and that pip does the work where uv cannot."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PIP = """\
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
if "config" in sys.argv:
    print({config!r})
sys.exit({code} if "--target" in sys.argv else 0)
"""


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for variable in [name for name in os.environ if name.startswith(("PIP_", "UV_", "REQUESTS_", "SSL_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("DIST_EXTRA_CONFIG", "")  # put back afterwards, too
    spec = importlib.util.spec_from_file_location("packages", ROOT / "tools" / "packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written_pip(tmp_path: Path, *, config: str = "", code: int = 0) -> list[str]:
    """The command of an installer that only notes how it was called; `code` is how it ends when it fetches uv."""
    script = tmp_path / "pip_script.py"
    script.write_text(PIP.format(log=str(tmp_path / "calls"), config=config, code=code))
    return [sys.executable, str(script), "pip", "install"]


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_uv_is_told_the_index_and_the_certificates_of_pip(packages: ModuleType) -> None:
    options = {
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "\nhttps://a.example/simple\nhttps://b.example/simple",
        "find-links": "/one /two",
        "cert": "/etc/own.pem",
        "disable-pip-version-check": "1",
    }
    assert packages.for_uv(options) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_FIND_LINKS": "/one,/two",
        "SSL_CERT_FILE": "/etc/own.pem",
    }


def test_an_option_that_uv_cannot_be_told_leaves_the_work_to_pip(packages: ModuleType) -> None:
    assert packages.for_uv({"client-cert": "/etc/me.pem"}) is None


def test_the_nearer_setting_of_pip_wins(packages: ModuleType, tmp_path: Path) -> None:
    config = (
        ":env:.timeout='7'\nglobal.timeout='5'\ninstall.timeout='6'\nglobal.cert='a=b'\ndownload.cert='c'"
    )
    assert packages.pip_options(written_pip(tmp_path, config=config)) == {"timeout": "7", "cert": "a=b"}


def test_pip_does_the_work_where_uv_cannot_be_had(
    packages: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert packages.main([str(tmp_path), *written_pip(tmp_path, code=1)]) == 0
    _config, _uv, locked, checkout = calls(tmp_path)
    assert "requirements.lock" in locked
    assert '"--require-hashes"' in locked
    assert '"-e"' in checkout
    assert "uv cannot be had (exit code 1)" in capfd.readouterr().err
    assert not list(tmp_path.glob(f"{packages.SCRATCH}*"))


def test_pip_does_the_work_where_it_is_configured_as_uv_is_not(packages: ModuleType, tmp_path: Path) -> None:
    assert packages.main([str(tmp_path), *written_pip(tmp_path, config="global.constraint='c.txt'")]) == 0
    assert len(calls(tmp_path)) == 3
    assert not any("--target" in call for call in calls(tmp_path))


def test_what_an_interrupted_installation_left_is_removed(packages: ModuleType, tmp_path: Path) -> None:
    left_over = tmp_path / f"{packages.SCRATCH}abc" / "cache"
    left_over.mkdir(parents=True)
    assert packages.main([str(tmp_path), *written_pip(tmp_path, code=1)]) == 0
    assert not left_over.exists()
