"""The clock of a temporary store: it stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.durations import FORMS, Duration, to_seconds
from holdfast.errors import BadArguments
from holdfast.store.base import Store


class Clock:
    """What the database uses as the time. It is frozen, so that nothing falls due by itself."""

    def __init__(self, now: datetime | None = None) -> None:
        if now is not None and (not isinstance(now, datetime) or now.tzinfo is None):
            raise BadArguments(
                f"now must be a datetime with a time zone, as in datetime(2030, 1, 1, tzinfo=UTC), not {now!r:.80}"
            )
        self._began = datetime.now(UTC)
        self.now = self._began if now is None else now.astimezone(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: Duration) -> datetime:
        try:
            self.now += timedelta(seconds=to_seconds(by))
        except (ValueError, OverflowError):  # time does not go back
            raise BadArguments(f"how far? {FORMS}, 0 or more; not {by!r:.80}") from None
        return self.now

    def take_over_rows(self, store: Store) -> None:
        """In a SQLite file triggers make rows of adopted tables jobs, and only know the host's clock: what that says is
        due counts as due."""
        if store.shown_url.startswith("sqlite"):
            instant = store.db.codec.instant
            until = datetime.now(UTC) + timedelta(milliseconds=1)  # they round to milliseconds, also up
            store.db.write("rows_due_by_host", since=instant(self._began), until=instant(until))
