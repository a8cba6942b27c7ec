"""The four roles of a schema, as SQL for psql: owner of the tables, worker, enqueuer, reader.

Each role has exactly the rights that its statements need; tests/roles tries them one by one. docs/database-roles.md
explains them."""

from __future__ import annotations

import re

from holdfast.errors import BadSettings
from holdfast.store.columns import KEYED, NOW
from holdfast.store.migrate import migrations

ROLES = ("owner", "worker", "enqueuer", "reader")

# The columns that an enqueuer may write. Not id, state, attempts, fence or creation time: so what is inserted waits to
# be run, and can't take another job's place.
ENQUEUED = tuple(column.name for column in KEYED if column.enqueued is not NOW)
# The columns that an enqueuer may read of other jobs: which job has a key, or works a row, and its state.
KEYS = (
    "id", "queue", "task", "key", "holds_key", "state", "priority", "created_at", "finished_at", "source", "source_id",
)  # fmt: skip

ALL = "select, insert, update, delete"
RIGHTS: dict[str, dict[str, str]] = {
    "worker": {
        "meta": "select, update (filter_version)",
        "jobs": ALL,
        "leases": ALL,
        "attempts": "select, insert, delete",
        "steps": "select, insert, delete",
        "pending": "select, insert, delete",
        "workers": ALL,
        "pauses": ALL,
        "crons": ALL,
        "stacks": ALL,
        "sources": "select",
        "inbox": "select",
        # Who did what can't be changed: only how far a call got. Retention deletes old rows.
        "audit": "select, insert, delete, update (changed, asked, refused, ended_at)",
        "audit_jobs": "select, insert, delete",
        "bulk_calls": ALL,
        # Not for readers: what is in here opens the HTTP API.
        "secrets": "select, insert",
        "api_keys": "select, insert, delete",
        # `n` is never changed: without the right to do that, a row can't be locked.
        "deltas": "select, insert, delete, update (n)",
        "rollups": ALL,
        "alerts": ALL,
        "sequence jobs_id_seq": "usage",
        "function argument(json, text[])": "execute",
        "function give_up_keys(text[], text[], timestamptz[], boolean[])": "execute",
        "function raise_priorities(text[], text[], smallint[])": "execute",
        "function retry_keys(text[], text[], timestamptz[], smallint[])": "execute",
        "function count_cache_hit(text, text, bigint)": "execute",
        # What is done to adopted tables, as the owner.
        "function open_sources(bigint[], timestamptz, uuid, text, timestamptz)": "execute",
        "function settle(text, integer, timestamptz, boolean)": "execute",
        "function settle_row(text, text, timestamptz)": "execute",
        "function beat(text, timestamptz)": "execute",
        "function sweep(text, text, integer, timestamptz)": "execute",
        "function lapsed(uuid, timestamptz)": "execute",
    },
    "enqueuer": {
        "meta": "select",
        "jobs": f"insert ({', '.join(ENQUEUED)}), select ({', '.join(KEYS)})",
        "function give_up_keys(text[], text[], timestamptz[], boolean[])": "execute",
        "function raise_priorities(text[], text[], smallint[])": "execute",
        "function retry_keys(text[], text[], timestamptz[], smallint[])": "execute",
        "function settle_row(text, text, timestamptz)": "execute",
        "function count_cache_hit(text, text, bigint)": "execute",
    },
    "reader": {
        **dict.fromkeys(
            (
                "meta",
                "jobs",
                "leases",
                "attempts",
                "steps",
                "pending",
                "workers",
                "pauses",
                "crons",
                "stacks",
                "audit",
                "audit_jobs",
                "bulk_calls",
                "sources",
                "inbox",
                "deltas",
                "rollups",
                "alerts",
            ),
            "select",
        ),
        "function argument(json, text[])": "execute",
    },
}


def script(schema: str, prefix: str | None = None) -> str:
    """One transaction, which may be run again. Names are plain (settings.py) and still quoted: they may contain
    capitals or be SQL keywords."""
    prefix = f"{schema}_" if prefix is None else prefix
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,53}", prefix):
        raise BadSettings(
            f"the prefix of roles {prefix!r} must be a plain name: letters, digits, _ and -, at most 54 long"
        )
    names = {role: f'"{prefix}{role}"' for role in ROLES}
    made = {kind: _made(kind) for kind in ("table", "function", "domain")}
    return _SCRIPT.format(
        schema=schema,
        owner=names["owner"],
        others=", ".join(names[role] for role in RIGHTS),
        roles=", ".join(f"'{prefix}{role}'" for role in ROLES),
        tables=", ".join(f'"{schema}".{name}' for name in made["table"]),
        functions=", ".join(f'"{schema}".{name}' for name in made["function"]),
        grants="\n\n".join(_grants(schema, names[role], rights) for role, rights in RIGHTS.items()),
        **{f"{kind}_names": ", ".join(f"'{name}'" for name in found) for kind, found in made.items()},
    )


def _made(kind: str) -> list[str]:
    """The names of all tables, functions or domains that the migrations make."""
    text = "\n".join(migration.sql for migration in migrations("postgres"))
    return re.findall(rf"^create {kind} @(\w+)", text, re.MULTILINE)


def _grants(schema: str, role: str, rights: dict[str, str]) -> str:
    return "\n".join(f"grant {right} on {_qualified(schema, thing)} to {role};" for thing, right in rights.items())


def _qualified(schema: str, thing: str) -> str:
    kind, _, name = thing.partition(" ") if " " in thing else ("table", "", thing)
    return f'{kind} "{schema}".{name}'


_SCRIPT = """\
-- The roles of Holdfast's schema "{schema}". Apply this after `holdfast migrate`, and again after each upgrade.
begin;

set local lock_timeout = '2s';

do $$
declare
    role_name text;
begin
    if to_regclass('"{schema}".meta') is null then
        raise exception 'there are no Holdfast tables in schema "{schema}": run holdfast migrate first';
    end if;
    foreach role_name in array array[{roles}] loop
        if not exists (select from pg_catalog.pg_roles where rolname = role_name) then
            execute format('create role %I nologin', role_name);
        end if;
    end loop;
    -- Only a member of a role can hand anything over to it.
    if not pg_has_role('{owner}'::regrole, case when current_setting('server_version_num')::integer < 160000
                                           then 'member' else 'set' end) then
        grant {owner} to current_user;
    end if;
end $$;

grant usage, create on schema "{schema}" to {owner};
grant usage on schema "{schema}" to {others};

-- Hand over what does not belong to the owner yet.
do $$
declare
    thing text;
begin
    for thing in
        select 'table ' || oid::regclass from pg_catalog.pg_class
         where relnamespace = '"{schema}"'::regnamespace and relowner <> '{owner}'::regrole and relkind = 'r'
           and relname in ({table_names})
        union all
        select 'function ' || oid::regprocedure from pg_catalog.pg_proc
         where pronamespace = '"{schema}"'::regnamespace and proowner <> '{owner}'::regrole
           and proname in ({function_names})
        union all
        select 'domain ' || oid::regtype from pg_catalog.pg_type
         where typnamespace = '"{schema}"'::regnamespace and typowner <> '{owner}'::regrole and typtype = 'd'
           and typname in ({domain_names})
    loop
        execute format('alter %s owner to {owner}', thing);
    end loop;
end $$;

-- Nobody else has any rights, and the other roles only those that follow.
revoke all on {tables} from public, {others};
revoke all on sequence "{schema}".jobs_id_seq from public, {others};
revoke all on function {functions} from public, {others};

{grants}

commit;
"""
