"""What the database of an installation has besides tables of models: search, triggers, storage, groups, schedules.

Django's makemigrations knows none of it; each function is an operation of the first migration.
"""

from __future__ import annotations

from django.apps.registry import Apps
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from runs.access_groups import create_groups

# Each database has its own kind of column and index for words. It removes a run's words with the run by itself,
# whichever statement deletes it.
SEARCH_SQLITE = (
    """CREATE TABLE runs_searchdocument (
        run_id integer PRIMARY KEY REFERENCES runs_run (id) ON DELETE CASCADE, words text NOT NULL)""",
    # The index is handed words (runs.search.words): its own tokenizer has only spaces to find.
    """CREATE VIRTUAL TABLE runs_searchindex USING fts5(
        words, content='runs_searchdocument', content_rowid='run_id', tokenize='ascii', columnsize=0)""",
    """CREATE TRIGGER runs_searchdocument_added AFTER INSERT ON runs_searchdocument BEGIN
        INSERT INTO runs_searchindex (rowid, words) VALUES (new.run_id, new.words); END""",
    """CREATE TRIGGER runs_searchdocument_deleted AFTER DELETE ON runs_searchdocument BEGIN
        INSERT INTO runs_searchindex (runs_searchindex, rowid, words) VALUES ('delete', old.run_id, old.words); END""",
)
SEARCH_POSTGRESQL = (
    "CREATE TABLE runs_searchdocument (run_id bigint PRIMARY KEY, words tsvector NOT NULL)",
    # What was indexed recently is in a list that every search reads: a short one.
    """CREATE INDEX runs_searchdocument_words ON runs_searchdocument USING gin (words)
        WITH (gin_pending_list_limit = 1024)""",
    # A foreign key would keep runs from being truncated.
    """CREATE FUNCTION runs_forget_words() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'TRUNCATE' THEN
            DELETE FROM runs_searchdocument;
        ELSE
            DELETE FROM runs_searchdocument WHERE run_id = OLD.id;
        END IF;
        RETURN NULL;
    END $$""",
    """CREATE TRIGGER runs_run_deleted AFTER DELETE ON runs_run
        FOR EACH ROW EXECUTE FUNCTION runs_forget_words()""",
    """CREATE TRIGGER runs_run_truncated AFTER TRUNCATE ON runs_run
        FOR EACH STATEMENT EXECUTE FUNCTION runs_forget_words()""",
    # Where a word is in most runs the planner would read them all, and unpack the words of each; so only the index of
    # words is left to it.
    """CREATE FUNCTION runs_list_by_words(wanted tsquery) RETURNS SETOF bigint
        LANGUAGE sql STABLE SET enable_seqscan = off SET enable_indexscan = off SET jit = off AS
        'SELECT run_id FROM runs_searchdocument WHERE words @@ wanted'""",
)

REFUSAL = "entries of the trail are kept as they are"
KEPT = "at, actor_name, token_name, address, action, object_kind, object_id, object_label, details, request_id"
# All that may change is that a user is gone. Django's “flush” deletes rows one by one on SQLite, so there is no trigger
# for that: see ADR 0016.
TRAIL_SQLITE = (
    f"""CREATE TRIGGER trail_is_kept BEFORE UPDATE OF id, {KEPT} ON runs_trailentry
        BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END""",
    f"""CREATE TRIGGER trail_actor_is_kept BEFORE UPDATE OF actor_id ON runs_trailentry WHEN NEW.actor_id IS NOT NULL
        BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END""",
)
TRAIL_POSTGRESQL = (
    f"""CREATE FUNCTION runs_keep_trail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'DELETE' AND current_setting('toolflow.purges_trail', true) = 'on' THEN RETURN OLD; END IF;
        RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$""",
    f"""CREATE TRIGGER trail_is_kept BEFORE UPDATE OF id, {KEPT} ON runs_trailentry
        FOR EACH ROW EXECUTE FUNCTION runs_keep_trail()""",
    """CREATE TRIGGER trail_actor_is_kept BEFORE UPDATE OF actor_id ON runs_trailentry
        FOR EACH ROW WHEN (NEW.actor_id IS NOT NULL) EXECUTE FUNCTION runs_keep_trail()""",
    """CREATE TRIGGER trail_is_not_deleted BEFORE DELETE ON runs_trailentry
        FOR EACH ROW EXECUTE FUNCTION runs_keep_trail()""",
    # Django's “flush” empties all tables: a variable allows it.
    f"""CREATE FUNCTION runs_keep_whole_trail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('toolflow.empties_trail', true) = 'on' THEN RETURN NULL; END IF;
        RAISE EXCEPTION '{REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$""",
    """CREATE TRIGGER trail_is_not_emptied BEFORE TRUNCATE ON runs_trailentry
        FOR EACH STATEMENT EXECUTE FUNCTION runs_keep_whole_trail()""",
)

PURGED_TABLES = (
    "runs_run",
    "runs_step",
    "runs_attempt",
    "runs_attemptrequest",
    "runs_issue",
    "runs_tokenusage",
    "runs_runfacet",
    "runs_originalinput",
    "runs_searchdocument",
    "runs_webhookdelivery",
    "runs_webhooktry",
)
STORAGE_POSTGRESQL = (
    # Vacuum would give the end of a file back to the disk after retention has emptied it, and lock the table for as
    # long as the disk takes. The space is used again instead.
    *(f"ALTER TABLE {table} SET (vacuum_truncate = false, toast.vacuum_truncate = false)" for table in PURGED_TABLES),
    # A run's row is updated about 8 times while it is worked on: new versions find room on the same page.
    "ALTER TABLE runs_run SET (fillfactor = 50)",
)

SCHEDULES = (
    ("toolflow sweep", "runs.sweep.sweep", {"schedule_type": "I", "minutes": 1}),
    ("toolflow bulk actions", "runs.bulk_actions.work.resume_all", {"schedule_type": "I", "minutes": 1}),
    ("toolflow webhooks", "runs.webhooks.tasks.send_due", {"schedule_type": "I", "minutes": 1}),
    ("toolflow retention", "runs.retention.tasks.purge_due", {"schedule_type": "H"}),
)


def create_search_tables(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Create the table of words that runs are found by, with its index and its triggers."""
    _execute(editor, sqlite=SEARCH_SQLITE, postgresql=SEARCH_POSTGRESQL)


def protect_trail(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Let the database refuse to change, delete or empty entries of the trail."""
    _execute(editor, sqlite=TRAIL_SQLITE, postgresql=TRAIL_POSTGRESQL)


def set_storage(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Set how PostgreSQL stores tables that are updated often or purged."""
    _execute(editor, sqlite=(), postgresql=STORAGE_POSTGRESQL)


def create_access_groups(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Create the groups Viewer, Operator, Editor and Administrator."""
    create_groups(apps=apps, using=editor.connection.alias)


def create_schedules(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Create the queue's schedules."""
    schedules = apps.get_model("django_q", "Schedule")._default_manager.using(editor.connection.alias)
    for name, func, timing in SCHEDULES:
        schedules.create(name=name, func=func, repeats=-1, **timing)


def _execute(editor: BaseDatabaseSchemaEditor, *, sqlite: tuple[str, ...], postgresql: tuple[str, ...]) -> None:
    for statement in postgresql if editor.connection.vendor == "postgresql" else sqlite:
        editor.execute(statement)
