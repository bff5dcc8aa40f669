"""Index the words of runs without storing them: ``rebuild_search`` indexes the runs that there are."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

SQLITE = (
    "DROP TABLE runs_searchdocument",
    "DROP TABLE runs_searchindex",
    # The index is handed words (runs.search.words): its own tokenizer has only spaces to find. The option
    # contentless_delete would need SQLite 3.43; its table of sizes says which runs are indexed.
    "CREATE VIRTUAL TABLE runs_searchindex USING fts5(words, content='', tokenize='ascii')",
    # Numbers of runs begin anew after Django's “flush”.
    """CREATE TRIGGER runs_run_all_deleted AFTER DELETE ON runs_run WHEN NOT EXISTS (SELECT 1 FROM runs_run) BEGIN
        INSERT INTO runs_searchindex (runs_searchindex) VALUES ('delete-all'); END""",
)
WORDS = "array_to_tsvector(string_to_array(words, ' '))"
POSTGRESQL = (
    "DROP FUNCTION runs_list_by_words(tsquery)",
    "DROP INDEX runs_searchdocument_words",
    "DELETE FROM runs_searchdocument",
    # The words in their order are half as large as a tsvector with their places.
    "ALTER TABLE runs_searchdocument ALTER COLUMN words TYPE text USING ''",
    # What was indexed recently is in a list that every search reads, and that takes more space than the index.
    f"""CREATE INDEX runs_searchdocument_words ON runs_searchdocument USING gin ({WORDS})
        WITH (gin_pending_list_limit = 128)""",
    # Where a word is in most runs the planner would read them all, and unpack the words of each; so only the index of
    # words is left to it.
    f"""CREATE FUNCTION runs_fetch_by_words(wanted tsquery, max_runs integer) RETURNS SETOF bigint
        LANGUAGE sql STABLE SET enable_seqscan = off SET enable_indexscan = off SET jit = off AS
        $$SELECT run_id FROM runs_searchdocument WHERE {WORDS} @@ wanted LIMIT max_runs$$""",  # noqa: S608  # a constant
)


def replace_index(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Replace the index of words by an empty one."""
    for statement in POSTGRESQL if editor.connection.vendor == "postgresql" else SQLITE:
        editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_drop_duration_totals")]
    operations = [migrations.RunPython(replace_index)]
