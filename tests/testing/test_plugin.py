"""The pytest plugin, in a pytest run of its own: found by its entry point, as a user's would be."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

pytest_plugins = "pytester"

APP = """
from holdfast import Holdfast

hf = Holdfast("postgresql://nobody@nowhere.invalid/jobs")

@hf.task(max_attempts=3, retry=[5, 60])
def send(to: str) -> str:
    return f"sent to {to}"
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(app=APP)
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:xdist", *arguments, timeout=60)


def test_the_plugin_is_found_by_its_entry_point() -> None:
    assert "pytest_holdfast" in {point.value for point in importlib.metadata.entry_points(group="pytest11")}


def test_the_fixture_gives_a_store_that_each_test_has_to_itself(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_app="""
        import pytest
        from app import hf, send

        @pytest.fixture
        def kit(holdfast_store):
            return holdfast_store(hf)

        @pytest.mark.parametrize("n", [1, 2])
        def test_sending(kit, n):
            job = send.enqueue("you")
            kit.assert_enqueued(send, to="you")
            assert len(kit.run_due(expect="succeeded")) == 1
            assert job.id == "1"

        def test_inline(holdfast_store):
            with_inline = holdfast_store(hf, inline=True)
            assert send.enqueue("you").result == "sent to you"

        def test_afterwards_all_is_as_before():
            assert hf.settings.url.startswith("postgresql")
        """
    )
    run(project).assert_outcomes(passed=4)


def test_a_failing_assertion_shows_the_jobs_and_not_the_inside_of_the_kit(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_app="""
        from app import hf, send

        def test_sending(holdfast_store):
            kit = holdfast_store(hf)
            send.enqueue("me")
            kit.assert_enqueued(send, to="you")
        """
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>*kit.assert_enqueued(send, to="you")',
            "E*AssertionError: no job of send(to='you') was enqueued; there are:",
            "E*job 1 send(to='me') in queue default: queued, due now",
        ]
    )
    result.stdout.no_fnmatch_line("*holdfast/testing/kit.py*")


def test_run_due_shows_where_the_handler_failed(project: pytest.Pytester) -> None:
    project.makepyfile(
        app=APP.replace('return f"sent', 'return 1 / 0 and f"sent'),
        test_app="""
        from app import hf, send

        def test_sending(holdfast_store):
            kit = holdfast_store(hf)
            send.enqueue("me")
            kit.run_due(expect="succeeded")
        """,
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*return 1 / 0*",
            "E*ZeroDivisionError: division by zero",
            "*app.py:*: ZeroDivisionError",
            "*The above exception was the direct cause of the following exception:*",
            "E*AssertionError: 1 of 1 jobs that ran are not succeeded:",
        ]
    )


def test_a_test_without_the_kit_does_not_touch_the_real_database(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_REAL_DATABASE", raising=False)
    project.makepyfile(
        app=APP.replace("postgresql://nobody@nowhere.invalid/jobs", "sqlite:///real.db"),
        test_app="""
        from app import hf, send

        def test_enqueue():
            send.enqueue("you")

        def test_migrate():
            hf.migrate()

        def test_with_the_kit(holdfast_store):
            holdfast_store(hf).assert_not_enqueued(send)
        """,
    )
    result = run(project)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["E*HF1116 a test is running*sqlite:///real.db*testing.store(hf)*"])
    assert not list(project.path.glob("real.db*"))
    monkeypatch.setenv("HOLDFAST_REAL_DATABASE", "0")
    run(project).assert_outcomes(passed=1, failed=2)
    monkeypatch.setenv("HOLDFAST_REAL_DATABASE", "1")
    run(project).assert_outcomes(passed=3)


def test_one_line_lets_tests_use_the_real_database(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_REAL_DATABASE", raising=False)
    project.makeini("[pytest]\nholdfast_real_database = true\naddopts = -p no:cacheprovider")
    project.makepyfile(
        app=APP.replace("postgresql://nobody@nowhere.invalid/jobs", "sqlite:///real.db"),
        test_app="""
        import subprocess, sys
        from app import send

        def test_enqueue():
            job = send.enqueue("you")
            subprocess.run([sys.executable, "-m", "holdfast", "drain", "app.py"], check=True)
            assert job.refresh().state == "succeeded"
        """,
    )
    run(project).assert_outcomes(passed=1)


def test_asynchronous_tests(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_app="""
        import asyncio
        from app import hf, send

        def test_sending(holdfast_store):
            async def test():
                kit = holdfast_store(hf)
                job = await send.aenqueue("you")
                await kit.arun_due(expect="succeeded")
                assert await job == "sent to you"
            asyncio.run(test())
        """
    )
    run(project).assert_outcomes(passed=1)


def test_a_run_that_does_not_use_it_imports_nothing_of_holdfast(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_app="""
        import sys

        def test_nothing(request):
            assert request.config.pluginmanager.hasplugin("holdfast")
            assert not [name for name in sys.modules if name.partition(".")[0] in ("holdfast", "msgspec")]
        """
    )
    run(project).assert_outcomes(passed=1)


def test_nothing_is_autouse(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_app="""
        def test_nothing(request):
            assert not [name for name in request.fixturenames if "holdfast" in name]
        """
    )
    run(project).assert_outcomes(passed=1)


def test_the_kit_needs_no_driver_and_no_pytest() -> None:
    code = "import sys, holdfast.testing; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not set(ran.stdout.split()) & {"psycopg", "pytest", "rich", "click"}
