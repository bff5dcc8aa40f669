"""Settings of a ToolFlow installation.

The environment is read here, once; ``.env.example`` lists the variables. With none of them set ToolFlow runs
embedded: SQLite, a generated secret key and all other state in ``var/``, and the simulated model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from toolflow_site import environment

BASE_DIR = Path(__file__).resolve().parent.parent

environment.load_env_file(BASE_DIR / environment.read_text("TOOLFLOW_ENV_FILE", ".env"))

# What ToolFlow itself reads

TOOLFLOW_DATA_DIR = environment.read_data_dir("TOOLFLOW_DATA_DIR", BASE_DIR / "var", base=BASE_DIR)

TOOLFLOW_OPENAI_API_KEY = environment.read_text("OPENAI_API_KEY")
TOOLFLOW_OPENAI_BASE_URL = environment.read_base_url("OPENAI_BASE_URL")
TOOLFLOW_PROVIDER = environment.read_choice(
    "TOOLFLOW_PROVIDER",
    "openai" if TOOLFLOW_OPENAI_API_KEY or TOOLFLOW_OPENAI_BASE_URL else "simulated",
    ("simulated", "openai"),
)
if TOOLFLOW_PROVIDER == "openai" and not (TOOLFLOW_OPENAI_API_KEY or TOOLFLOW_OPENAI_BASE_URL):
    raise ImproperlyConfigured(
        "TOOLFLOW_PROVIDER is “openai”, but neither OPENAI_API_KEY nor OPENAI_BASE_URL is set; set one of them."
    )

# What calls fall back to where neither step nor flow says otherwise.
TOOLFLOW_MODEL = environment.read_text("TOOLFLOW_MODEL", "gpt-5-mini")
TOOLFLOW_TEMPERATURE = environment.read_number("TOOLFLOW_TEMPERATURE", None, minimum=0, maximum=2)
TOOLFLOW_MAX_TOKENS = environment.read_integer("TOOLFLOW_MAX_TOKENS", None, minimum=1)

TOOLFLOW_CALL_TIMEOUT = environment.read_integer("TOOLFLOW_CALL_TIMEOUT", 120, minimum=1, maximum=3600)
"""Seconds that one model call may take."""
TOOLFLOW_RUNS_IN_FLIGHT = environment.read_integer("TOOLFLOW_RUNS_IN_FLIGHT", 200, minimum=1, maximum=10_000)
"""How many runs one worker process has under way at the same time."""
TOOLFLOW_WORKERS = environment.read_integer("TOOLFLOW_WORKERS", 2, minimum=2, maximum=64)
"""Worker processes of this host. All but one execute runs, so that sweeps always find a free one."""
TOOLFLOW_LEASE = environment.read_integer("TOOLFLOW_LEASE", 60, minimum=2, maximum=600)
"""Seconds that a worker which is not heard of keeps its runs."""
TOOLFLOW_SEVERAL_HOSTS = environment.read_flag("TOOLFLOW_SEVERAL_HOSTS", default=False)
"""Whether web servers or workers run on several hosts: then the checks refuse what only works on one."""
TOOLFLOW_PLUGINS = environment.read_modules("TOOLFLOW_PLUGINS", ["flows.examples.plugins"])
TOOLFLOW_PLUGIN_TIMEOUT = environment.read_integer("TOOLFLOW_PLUGIN_TIMEOUT", 60, minimum=1, maximum=3600)
"""Seconds that one call of a plug-in may take."""
TOOLFLOW_PLUGIN_WAIT = environment.read_integer("TOOLFLOW_PLUGIN_WAIT", 900, minimum=0, maximum=604_800)
"""Seconds that a run waits for a worker that has the plug-ins of its version."""

TOOLFLOW_API_MAX_BODY = environment.read_integer("TOOLFLOW_API_MAX_BODY", 10_000_000, minimum=10_000)
"""Bytes that the body of a request to the API may have."""
TOOLFLOW_API_READS_PER_MINUTE = environment.read_integer("TOOLFLOW_API_READS_PER_MINUTE", 12_000, minimum=1)
TOOLFLOW_API_WRITES_PER_MINUTE = environment.read_integer("TOOLFLOW_API_WRITES_PER_MINUTE", 12_000, minimum=1)
"""Requests to the API that a token may make, or a user who is signed in on the pages."""
TOOLFLOW_API_STRANGERS_PER_MINUTE = environment.read_integer("TOOLFLOW_API_STRANGERS_PER_MINUTE", 600, minimum=1)
"""Requests to the API that one address may make without a token that lets it in."""

TOOLFLOW_WEBHOOK_SECRET = environment.read_webhook_secrets("TOOLFLOW_WEBHOOK_SECRET")
"""What webhooks are signed with, the newest first; without any it follows from the secret key."""
TOOLFLOW_WEBHOOK_ALLOW = environment.read_targets("TOOLFLOW_WEBHOOK_ALLOW")
"""Hosts and networks that webhooks may reach besides the internet, and without TLS."""

# Django

SECRET_KEY = environment.read_secret_key("TOOLFLOW_SECRET_KEY", TOOLFLOW_DATA_DIR / "secret_key")
DEBUG = environment.read_flag("TOOLFLOW_DEBUG", default=False)
ALLOWED_HOSTS = environment.read_list("TOOLFLOW_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "nested_admin",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "csp",
    "django_q",
    "django_htmx",
    "heroicons",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "flows",
    "runs",
]

MIDDLEWARE = [
    # First, so that its header is on every answer, whoever gives it.
    "csp.middleware.CSPMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    # Last: see there.
    "runs.pages.viewer_time_zone.show_local_times",
]

ROOT_URLCONF = "toolflow_site.urls"
ASGI_APPLICATION = "toolflow_site.asgi.application"
WSGI_APPLICATION = "toolflow_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {
    "default": environment.read_database(
        "DATABASE_URL", sqlite_path=TOOLFLOW_DATA_DIR / "toolflow.sqlite3", base=BASE_DIR
    ),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = environment.read_time_zone("TOOLFLOW_TIME_ZONE", "UTC")

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Served straight from the installed packages and static/: there is nothing to collect first.
WHITENOISE_USE_FINDERS = True

# A flow with all its steps and audits is one form.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000

# Security

CSRF_TRUSTED_ORIGINS = environment.read_origins("TOOLFLOW_CSRF_TRUSTED_ORIGINS")
# Whoever names only HTTPS origins serves through TLS; the embedded default has none.
SESSION_COOKIE_SECURE = bool(CSRF_TRUSTED_ORIGINS) and all(
    origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS
)
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    },
}

# The API

# Tokens are hashed as the package does it; their rows are ours, so its own table is not made.
KNOX_TOKEN_MODEL = "runs.ApiToken"  # noqa: S105  # the name of a model
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {"AUTH_HEADER_PREFIX": "Bearer", "TOKEN_PREFIX": "tf_"}
REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNICODE_JSON": True,
    # What is wanted stands in the Accept header; a parameter that no endpoint knows is refused like any other.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.1",
    "TITLE": "ToolFlow",
    "VERSION": "1",
    "DESCRIPTION": (
        "Everything that the pages of ToolFlow can do, for scripts. Start with the guide “Automate ToolFlow”.\n\n"
        "Sign in with `Authorization: Bearer tf_…`. Bodies are JSON in which unknown fields are errors, as are unknown "
        "query parameters. Times are ISO 8601 in UTC, costs are decimal texts in USD, what is absent is `null`. "
        "Whatever can’t be done is answered with a problem document (RFC 9457)."
    ),
    "LICENSE": {"name": "MIT", "identifier": "MIT"},
    "TAGS": [
        {"name": "Runs", "description": "Start runs, follow them, and read what was produced and what was wrong."},
        {"name": "Flows", "description": "What may run: flows and their versions, as documents like flow files."},
        {"name": "Statistics", "description": "Figures of flows and audits, and what models used."},
        {"name": "Documentation", "description": "This description."},
    ],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SCHEMA_PATH_PREFIX_TRIM": True,
    "ENUM_SUFFIX": "",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "RunStatus": "runs.models.RunStatus.values",
        "EndReason": "runs.models.EndReason.values",
        "TokenScope": "runs.models.TokenScope.values",
        "Severity": "runs.api.schema_completion.SEVERITIES",
        "Outcome": "runs.api.schema_completion.OUTCOMES",
    },
    "POSTPROCESSING_HOOKS": [
        "runs.api.schema_completion.know_choices_by_values",
        "drf_spectacular.hooks.postprocess_schema_enums",
        "runs.api.schema_completion.complete_schema",
    ],
}

# The queue

# A drain rotates after about four minutes and then lets its calls end, and what judges their outputs; only after that
# may it be stopped, and only after that may its message be delivered again.
_DRAIN_TIMEOUT = 300 + TOOLFLOW_CALL_TIMEOUT + TOOLFLOW_PLUGIN_TIMEOUT

Q_CLUSTER = {
    "name": "toolflow",
    "workers": TOOLFLOW_WORKERS,
    # The clock of `retry` starts when a message is fetched: none may wait behind another.
    "queue_limit": 1,
    "bulk": 1,
    "timeout": _DRAIN_TIMEOUT,
    "retry": _DRAIN_TIMEOUT + 120,
    # The Run table is the truth: a failed message is done with, and the sweep finds what it left.
    "ack_failures": True,
    "max_attempts": 1,
    "save_limit": -1,
    "catch_up": False,
    "recycle": 100,
    "poll": 0.2,
    # The hard stop at `timeout` only works with a power of two.
    "guard_cycle": 0.5,
    **environment.read_broker("TOOLFLOW_REDIS_URL"),
}

# Caches

_MEMORY = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 10_000}}
CACHES: dict[str, dict[str, Any]] = {
    # What a process remembers for a moment. It never waits for another one.
    "default": {**_MEMORY, "LOCATION": "default"},
    # How many requests somebody made to the API. With Redis all web servers know it.
    "throttling": {**_MEMORY, "LOCATION": "throttling"},
}
if _redis := Q_CLUSTER.get("redis"):
    CACHES["throttling"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "KEY_PREFIX": "toolflow",
        "LOCATION": "rediss://" if _redis["ssl"] else "redis://",
        "OPTIONS": {
            **{name: value for name, value in _redis.items() if name != "ssl"},
            # Seconds. Every request to the API waits for it.
            "socket_connect_timeout": 0.5,
            "socket_timeout": 0.5,
        },
    }

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        # Without handlers of its own, so that each line appears once, with DEBUG or without.
        "django": {"handlers": [], "level": "INFO"},
        # At INFO these tell of every call, and of every message that is handed over.
        "httpx2": {"level": "WARNING"},
        "django-q": {"level": "WARNING"},
    },
}
