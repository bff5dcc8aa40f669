"""The settings of ToolFlow, for tests: nothing of the developer's own environment shapes or feels a test.

Which database they run on is the one thing that the environment decides (``DATABASE_URL``).
"""

import os
import tempfile
from pathlib import Path

for _name in list(os.environ):
    if _name.startswith(("OPENAI_", "TOOLFLOW_")) and not _name.startswith(("TOOLFLOW_TEST_", "TOOLFLOW_REQUIRE")):
        del os.environ[_name]

_data_dir = tempfile.TemporaryDirectory(prefix="toolflow-tests-")
os.environ["TOOLFLOW_DATA_DIR"] = _data_dir.name
os.environ["TOOLFLOW_ENV_FILE"] = os.devnull
# Commands that tests start read the real settings, from the environment that the test gives them.
os.environ["DJANGO_SETTINGS_MODULE"] = "toolflow_site.settings"

from toolflow_site.settings import *  # noqa: E402, F403  # the environment had to be cleaned first

# The real one takes a quarter of a second for each user, on purpose.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# WhiteNoise looks for a file when it is asked for one, and not through all folders for every client of a test.
WHITENOISE_AUTOREFRESH = True

# Tests of signing in turn it on.
AXES_ENABLED = False

_database = DATABASES["default"]  # noqa: F405  # comes with the settings
if "postgresql" in _database["ENGINE"]:
    # Tests that commit leave empty tables behind, also that of the trail.
    _database["OPTIONS"]["options"] += " -c toolflow.empties_trail=on"
# A name of its own for every session, so that two at a time don't meet. SQLite's is a file, as in production: its
# databases in memory know no waiting for locks.
_database["TEST"] = {
    "NAME": f"{_data_dir.name}/test.sqlite3"
    if _database["ENGINE"] == "django.db.backends.sqlite3"
    else f"test_{Path(_data_dir.name).name}"
}
