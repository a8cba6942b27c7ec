from __future__ import annotations

import pytest

from holdfast.model.cron_words import in_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 * * * *", "every hour"),
        ("@hourly", "every hour"),
        ("15 * * * *", "every hour at 15 minutes past"),
        ("0 */2 * * *", "every 2 hours"),
        ("1 */6 * * *", "every 6 hours at 1 minute past"),
        ("@daily", "at 00:00"),
        ("30 6 * * MON-FRI", "at 06:30, Monday to Friday"),
        ("30 6,18 * * *", "at 06:30 and 18:30"),
        ("0,30 9 * * 1", "at 09:00 and 09:30, Monday"),
        ("0 0 * * 7", "at 00:00, Sunday"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59, Monday to Friday"),
        ("* 3 * * *", "every minute from 03:00 to 03:59"),
        ("5 8-18 * * sat,sun", "every hour from 08:05 to 18:05, Saturday and Sunday"),
        ("0 4 1 * *", "at 04:00, on the 1st of the month"),
        ("0 4 2,3,11,22 jan,jul *", "at 04:00, on the 2nd, 3rd, 11th and 22nd of the month, in January and July"),
        ("0 0 1 1 *", "at 00:00, on the 1st of the month, in January"),
        ("0 12 L * *", "at 12:00, on the last day of the month"),
        ("0 12 13 * FRI", "at 12:00, on the 13th of the month or Friday"),
        ("0 12 */2 * MON", "at 12:00, on every 2nd day of the month if it is Monday"),
        ("0 9 * * MON#2", "at 09:00, the second Monday of the month"),
        ("0 9 * * 5L", "at 09:00, the last Friday of the month"),
        ("0 9 * 3-5 *", "at 09:00, in March to May"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("* * * * * *", "every second"),
        ("30 0 3 * * *", "at second 30, at 03:00"),
        ("5-20/5 * * * *", "every hour at minutes 5 to 20/5"),
        ("0-10 1,2 * * *", "at minutes 0 to 10 of hours 1 and 2"),
        ("*/10 1,2 * * *", "every 10 minutes, in hours 1 and 2"),
        ("0 0 1-7 * *", "at 00:00, on days 1 to 7 of the month"),
        ("not a cron", "not a cron"),
    ],
)
def test_a_cron_expression_has_words(expression: str, words: str) -> None:
    assert in_words(expression) == words
