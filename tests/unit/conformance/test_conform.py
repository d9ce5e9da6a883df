"""Whole runs, of few cases, against the embedded store and against odd ones."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kip30 import ConfigError, StoreError
from kip30.config import load
from kip30.config.extras import how_to_install
from kip30_conformance import conform
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.machine_speed import LEAST, MOST
from kip30_conformance.polling import time_scale

STORES = Path(__file__).parent / "stores"
_STALL_SECONDS = 1.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a properties file of an embedded store of the test's own."""
    file = tmp_path / "kip30.properties"
    file.write_text(f"plugin.backend=embedded\nplugin.embedded.directory={tmp_path / 'state'}\n")
    return file


def odd(store: str, config: Path) -> Path:
    """Return *config* changed to name one of the odd stores."""
    text = config.read_text().replace(
        "plugin.backend=embedded",
        f"plugin.locator.classname=odd_stores:{store}\nplugin.additional.paths={STORES}",
    )
    config.write_text(text)
    return config


def conform_process(config: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in *config*'s folder, where pytest is configured with an unknown option."""
    (config.parent / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    return subprocess.run(
        [sys.executable, "-m", "kip30", "conform", "--config", str(config), *arguments],
        cwd=config.parent,
        env={**os.environ, "PYTEST_ADDOPTS": "--no-such-option"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def report_in(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.large
def test_a_properties_file_is_all_it_needs(config: Path, tmp_path: Path) -> None:
    ended = conform_process(
        config, "--case", "S03", "--case", "G14", "--case", "S30", "--seed", "7", "--out", "out"
    )
    assert ended.returncode == 0, ended.stderr
    assert len([line for line in ended.stderr.splitlines() if "] passed" in line]) == 9
    assert "passed, of what could be tested: 9 passed, 1 skipped" in ended.stderr
    report = report_in(tmp_path / "out")
    assert report["seed"] == 7
    assert report["store"]["name"] == "embedded"
    assert report["store"]["description"]["version"].startswith("SQLite")
    assert {one["case"] for one in report["checks"]} == {"S03", "G14", "S30"}
    assert {one["outcome"] for one in report["capabilities"]} == {"passed"}
    [durability] = [
        one for one in report["checks"] if one["case"] == "S30" and one["outcome"] == "passed"
    ]
    assert durability["level"] == "fault"
    assert durability["evidence"]
    assert (tmp_path / "out" / "junit.xml").read_text().count("<testcase ") == len(report["checks"])
    for name in ("report.md", "report.html"):
        assert "S03" in (tmp_path / "out" / name).read_text()


def test_a_broken_promise_is_exit_1(config: Path, tmp_path: Path) -> None:
    summary = conform.run(odd("Overwriting", config), cases=["S03", "S01"], out_dir=tmp_path)
    assert summary.exit_code == 1
    [failed] = [one for one in summary.checks if one.outcome.value == "failed"]
    assert failed.name == "test_S03_put_existing"
    assert "DID NOT RAISE" in failed.detail


def test_a_case_is_found_however_it_is_written(config: Path, tmp_path: Path) -> None:
    summary = conform.run(config, cases=["s03"], out_dir=tmp_path)
    assert {one.case for one in summary.checks} == {"S03"}


def test_failed_cases_are_counted_named_and_repeated(config: Path, tmp_path: Path) -> None:
    odd("Overwriting", config)
    ended = conform_process(config, "--case", "s03, S01", "--case", "S02", "--out", "out")
    assert ended.returncode == 1
    assert ", 1 failed] " in ended.stderr
    seed = report_in(tmp_path / "out")["seed"]
    hint = f"run the same with --failed, or with --case S03 --seed {seed}"
    assert hint in ended.stderr
    repeated = conform_process(config, "--failed", "--out", "out")
    assert repeated.returncode == 1
    assert {one["case"] for one in report_in(tmp_path / "out")["checks"]} == {"S03"}
    config.write_text(config.read_text().replace("odd_stores:Overwriting", "odd_stores:Plain"))
    assert conform_process(config, "--failed", "--out", "out").returncode == 0
    ended = conform_process(config, "--failed", "--out", "out")
    assert ended.returncode == 0
    assert "nothing failed in the last run of out" in ended.stderr


def test_an_interrupted_run_without_failures_is_none_to_repeat(
    config: Path, tmp_path: Path
) -> None:
    conform.run(config, cases=["S03"], out_dir=tmp_path / "out")
    report = report_in(tmp_path / "out")
    (tmp_path / "out" / "report.json").write_text(json.dumps({**report, "interrupted": True}))
    ended = conform_process(config, "--failed", "--out", "out")
    assert ended.returncode == 2
    assert "was interrupted before anything failed: run without --failed" in ended.stderr


def test_failures_of_no_run_are_none_to_repeat(config: Path) -> None:
    ended = conform_process(config, "--failed", "--out", "none")
    assert ended.returncode == 2
    assert "run without --failed first" in ended.stderr
    ended = conform_process(config, "--failed", "--case", "S03")
    assert ended.returncode == 2
    assert "--failed and --case exclude each other" in ended.stderr


def test_all_checks_are_listed_without_a_store(config: Path) -> None:
    config.unlink()
    ended = conform_process(config, "--list")
    assert ended.returncode == 0
    rows = [line.split("\t") for line in ended.stdout.splitlines()]
    assert ["S03", "core", "test_S03_put_existing"] in [row[:3] for row in rows]
    assert {row[1] for row in rows} == {"core", "coordinator", "fault", "scale"}
    assert all(row[3].endswith(".") for row in rows)
    assert not (config.parent / "conform-report").exists()


def test_a_store_of_one_process_is_refused(config: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="other processes do not see what this client writes"):
        conform.run(odd("Private", config), cases=["S01"], out_dir=tmp_path / "out")
    assert not (tmp_path / "out" / "report.json").exists()


def test_a_store_that_is_always_reached_skips_what_needs_an_unreachable_one(
    config: Path, tmp_path: Path
) -> None:
    config.write_text(f"{odd('Placeless', config).read_text()}plugin.namespace={tmp_path.name}\n")
    config.write_text(config.read_text().replace("plugin.embedded.directory", "plugin.odd.where"))
    summary = conform.run(config, cases=["G03"], out_dir=tmp_path / "out")
    [check] = summary.checks
    assert check.outcome.value == "skipped"
    assert "no address and no path" in check.detail


def test_reports_go_to_a_folder(config: Path) -> None:
    with pytest.raises(ConfigError, match="is a file: name a folder"):
        conform.run(config, cases=["S01"], out_dir=config)


def test_the_report_names_the_default_backend(config: Path, tmp_path: Path) -> None:
    config.write_text(config.read_text().replace("plugin.backend=embedded", ""))
    summary = conform.run(config, cases=["S01"], out_dir=tmp_path)
    assert summary.store.settings["plugin.backend"] == "embedded"
    assert "| store | embedded |" in (tmp_path / "report.md").read_text()


def test_undeclared_powers_must_be_refused_and_are_no_skip(config: Path, tmp_path: Path) -> None:
    cases = ["G14", "S07", "S11", "S24"]
    summary = conform.run(odd("Plain", config), cases=cases, out_dir=tmp_path)
    assert {one.outcome.value for one in summary.checks} == {"passed"}
    assert {one.case for one in summary.checks} == set(cases)
    assert set(summary.store.capabilities.values()) == {False}


def test_skips_alone_are_no_evidence(config: Path, tmp_path: Path) -> None:
    summary = conform.run(odd("Unfaultable", config), cases=["R22"], out_dir=tmp_path)
    assert summary.exit_code == 3
    assert {one.outcome.value for one in summary.checks} == {"skipped"}
    assert {one.detail for one in summary.checks} == {
        "Unfaultable offers no `faults.expire_session`",
        "no servers that may be harmed",
    }


def test_faults_that_do_not_happen_are_no_evidence(config: Path, tmp_path: Path) -> None:
    summary = conform.run(odd("Elusive", config), cases=["S29"], out_dir=tmp_path)
    assert summary.exit_code == 3
    outcomes = {one.name: one.outcome.value for one in summary.checks}
    assert outcomes["test_S29_put_own_success"] == "no evidence"


@pytest.mark.large
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_reports_what_it_has(
    config: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command: list[str | Path] = [sys.executable, "-m", "kip30", "conform", "--config", config]
    with (
        heeded(),
        subprocess.Popen(
            [*command, "--out", tmp_path / "out"], stderr=subprocess.PIPE, text=True
        ) as running,
    ):
        assert running.stderr is not None
        next(line for line in running.stderr if line.startswith("[5/"))
        running.send_signal(number)
        running.stderr.read()
    assert running.returncode == 128 + number
    report = report_in(tmp_path / "out")
    assert 5 <= len(report["checks"]) < 100
    assert {one["outcome"] for one in report["checks"]} <= {"passed", "skipped"}
    assert (report["verdict"], report["exit_code"]) == ("interrupted", 3)


@pytest.mark.large
def test_a_stall_of_the_suite_is_noted_at_its_check(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kip30", "conform", "--config", str(config)]
    with subprocess.Popen(
        [*command, "--case", "G14", "--case", "S03", "--out", tmp_path / "out"],
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if line.startswith("[1/"))
        running.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, running.pid, os.WSTOPPED)
        time.sleep(_STALL_SECONDS)  # the stall itself
        running.send_signal(signal.SIGCONT)
        shown = running.stderr.read()
    assert running.returncode == 0
    assert "the suite's process was stalled for" in shown
    report = report_in(tmp_path / "out")
    stalls = [check["stalled_seconds"] for check in report["checks"]]
    assert max(stalls) > _STALL_SECONDS / 2
    assert report["stalled_seconds"] == pytest.approx(sum(stalls), abs=0.01)


@pytest.mark.large
def test_on_a_terminal_there_is_a_bar(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kip30", "conform", "--config", str(config)]
    master, terminal = os.openpty()
    with subprocess.Popen(
        [*command, "--case", "S03", "--out", tmp_path / "out"], stderr=terminal
    ) as running:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # no process has the terminal open any more
            while chunk := os.read(master, 4096):
                shown += chunk
    os.close(master)
    assert running.returncode == 0
    assert b"S03" in shown
    assert b"1/1" in shown
    assert b"passed: 1 passed" in shown


@pytest.mark.large
def test_a_seed_is_drawn_and_reported(config: Path, tmp_path: Path) -> None:
    seeds = {conform.run(config, cases=["S01"], out_dir=tmp_path).seed for _ in range(2)}
    assert len(seeds) == 2


def test_deadlines_follow_the_machine(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KIP30_TIME_SCALE", raising=False)
    summary = conform.run(config, cases=["S01"], out_dir=tmp_path / "report")
    assert LEAST <= float(summary.environment["time scale"]) <= MOST
    assert time_scale() == 1


def test_an_unknown_case_runs_nothing(config: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no case S99: .*S01 to S\d\d.*report\.md"):
        conform.run(config, cases=["S01", "s99"], out_dir=tmp_path / "out")
    assert not (tmp_path / "out" / "report.json").exists()


def test_a_wrong_setting_is_exit_2(config: Path) -> None:
    config.write_text("plugin.backend=embedded\nplugin.embedded.directry=x\n")
    ended = conform_process(config, "--case", "S01")
    assert ended.returncode == 2
    assert "plugin.embedded.directory" in ended.stderr


def test_a_missing_package_is_named_with_how_to_install_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conform, "_NEEDS", ("pytest", "no_such_package"))
    how = re.escape(how_to_install("conformance"))
    with pytest.raises(ConfigError, match=f"no_such_package; {how}"):
        conform.run(config, out_dir=tmp_path)


def test_configured_timeouts_are_kept(config: Path) -> None:
    with config.open("a") as file:
        file.write("plugin.session.timeout.ms=1000\nplugin.namespace=team\n")
    harness = conform.PropertiesHarness(load(config))
    properties = harness.properties(harness.unique_root())
    assert properties["plugin.session.timeout.ms"] == "1000"
    assert properties["plugin.operation.timeout.ms"] == 1000
    assert str(properties["plugin.namespace"]).startswith("team-conform-")
