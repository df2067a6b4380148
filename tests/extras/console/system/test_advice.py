"""The page of advice: it asks what the command asks, and answers as the command does."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from shmq.extras.advice.report import advise
from shmq.extras.advice.workload import ANSWERS, Workload
from tests.support.browser import HOSTILE, Page, open_page
from tests.support.console import Console


def test_the_form_has_a_field_for_each_answer_and_no_advice_yet(site: Console) -> None:
    text = open_page(site, "/advice").content.decode()
    fields = re.findall(r'<(?:input|select) id="(\w+)"', text)
    assert sorted(fields) == sorted(ANSWERS)
    assert 'id="advice"' not in text


def test_the_advice_is_that_of_the_command(site: Console) -> None:
    answers = {"rate": "20", "peak_rate": "100", "work_p99": "2s", "order": "key", "keys": "5"}
    page = open_page(site, f"/advice?{urlencode(answers)}").content.decode()
    advice = advise(
        Workload.of({**answers, "rate": 20, "peak_rate": 100, "work_p99": 2, "keys": 5})
    )
    text = Page(page).text
    for setting in advice.settings:
        assert setting.reason in text, setting
    for warning in advice.warnings:
        assert warning in text
    assert advice.verdict() in text
    assert 'group="KEY"' in text and "shmq create jobs" in text
    assert "<svg" in page


def test_what_another_system_does_better_is_said(site: Console) -> None:
    page = open_page(site, "/advice?workflow=yes").content.decode()
    assert "Use Temporal instead" in Page(page).text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"rate": "-1"}, "rate=-1.0"),
        ({"rate": "100", "peak_rate": "1"}, "is less than rate=100.0"),
        ({"rate": HOSTILE}, "it is not a number"),
        ({"order": HOSTILE}, "it is one of none, key, total"),
    ],
)
def test_an_answer_that_is_none_is_told_in_the_page(
    site: Console, query: dict[str, str], words: str
) -> None:
    answer = open_page(site, f"/advice?{urlencode(query)}")
    text = answer.content.decode()
    assert answer.status == 200
    assert words in Page(text).text
    assert 'role="alert"' in text and "<img src=x" not in text


def test_nothing_to_do_and_too_much_to_do_are_shown(site: Console) -> None:
    for query in ("rate=0&work_p50=0&body_p50=0", "rate=1e9&work_p50=1d&order=total"):
        assert open_page(site, f"/advice?{query}").status == 200


def test_a_text_without_end_is_refused(site: Console) -> None:
    assert open_page(site, f"/advice?rate={'1' * 500}").status == 400
