"""The table of words that runs are found by, and its index: full text on PostgreSQL, FTS5 on SQLite.

They are no models: each database has its own kind of column and index for words, and takes a run's words away with the
run by itself, whoever deletes it.
"""

from __future__ import annotations

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

SQLITE = (
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
SQLITE_BACK = ("DROP TABLE runs_searchindex", "DROP TABLE runs_searchdocument")

POSTGRESQL = (
    "CREATE TABLE runs_searchdocument (run_id bigint PRIMARY KEY, words tsvector NOT NULL)",
    # What was indexed lately lies in a list that every search reads: a short one.
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
    # words is left to it (“IS TRUE” hides the numbers from the other one).
    """CREATE FUNCTION runs_list_by_words(wanted tsquery, lowest bigint, highest bigint) RETURNS SETOF bigint
        LANGUAGE sql STABLE SET enable_seqscan = off SET enable_indexscan = off SET jit = off AS
        'SELECT run_id FROM runs_searchdocument
        WHERE words @@ wanted AND (run_id BETWEEN lowest AND highest) IS TRUE'""",
)
POSTGRESQL_BACK = (
    "DROP FUNCTION runs_list_by_words",
    "DROP TRIGGER runs_run_truncated ON runs_run",
    "DROP TRIGGER runs_run_deleted ON runs_run",
    "DROP FUNCTION runs_forget_words",
    "DROP TABLE runs_searchdocument",
)


def create(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    for statement in POSTGRESQL if editor.connection.vendor == "postgresql" else SQLITE:
        editor.execute(statement)


def drop(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    for statement in POSTGRESQL_BACK if editor.connection.vendor == "postgresql" else SQLITE_BACK:
        editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0010_statistics"),
    ]

    operations = [migrations.RunPython(create, drop)]
