"""Settings of a ToolFlow installation.

The environment is read here, once; ``.env.example`` lists the variables. With none of them set ToolFlow runs
embedded: SQLite, a generated secret key and all other state in ``var/``, and the simulated model.
"""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from zoneinfo import ZoneInfo

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

from flows.engine.model_families import ReasoningEffort
from flows.engine.providers import Api
from flows.engine.spec import ServiceTier
from runs.observability.log_lines import FORMATS, LEVELS, build_logging
from runs.webhooks.addresses import Target
from toolflow_site import api_description, production
from toolflow_site import environment as env
from toolflow_site.backends import build_broker, build_caches, build_database

_SITE_DIR = Path(__file__).resolve().parent
_IS_CHECKOUT = (_SITE_DIR.parent / "manage.py").exists()

# In a checkout everything lies around manage.py. Installed as a package ToolFlow keeps nothing beside its code: what is
# the installation's own lies where it is started.
BASE_DIR = _SITE_DIR.parent if _IS_CHECKOUT else Path.cwd()
_PARTS_DIR = _SITE_DIR.parent if _IS_CHECKOUT else _SITE_DIR

env.load_env_file(BASE_DIR / env.read_text("TOOLFLOW_ENV_FILE", ".env"))

# What ToolFlow itself reads

TOOLFLOW_ENV = env.read_choice("TOOLFLOW_ENV", "development", ("development", "production"))
"""In production unsafe settings are refused: see ``toolflow_site/production.py``."""
_IS_PRODUCTION = TOOLFLOW_ENV == "production"

TOOLFLOW_DATA_DIR = env.read_data_dir("TOOLFLOW_DATA_DIR", BASE_DIR / "var", base=BASE_DIR)

TOOLFLOW_OPENAI_API_KEY = env.read_secret("OPENAI_API_KEY")
TOOLFLOW_OPENAI_BASE_URL = env.read_base_url("OPENAI_BASE_URL")
TOOLFLOW_PROVIDER = env.read_choice(
    "TOOLFLOW_PROVIDER",
    "openai" if TOOLFLOW_OPENAI_API_KEY or TOOLFLOW_OPENAI_BASE_URL else "simulated",
    ("simulated", "openai"),
)
TOOLFLOW_PROVIDER_NAMED = bool(env.read_text("TOOLFLOW_PROVIDER"))
"""Whether it is set, rather than that it follows from what else is set."""
if TOOLFLOW_PROVIDER == "openai" and not (TOOLFLOW_OPENAI_API_KEY or TOOLFLOW_OPENAI_BASE_URL):
    raise ImproperlyConfigured(
        "TOOLFLOW_PROVIDER is “openai”, but neither OPENAI_API_KEY nor OPENAI_BASE_URL is set; set one of them."
    )

TOOLFLOW_API = env.read_choice("TOOLFLOW_API", "auto", tuple(Api))
"""The API by which the default provider is asked."""
# By this name Django's page of an error in development leaves the values out.
TOOLFLOW_API_HEADERS = env.read_headers("TOOLFLOW_HEADERS")
"""Sent to the default provider with every call."""
TOOLFLOW_PROVIDERS = env.read_providers("TOOLFLOW_PROVIDERS")
"""Other providers by name: flows name their models as ``provider:model``."""

# What calls fall back to where neither step nor flow says otherwise.
TOOLFLOW_MODEL = env.read_text("TOOLFLOW_MODEL", "gpt-5-mini")
TOOLFLOW_TEMPERATURE = env.read_number("TOOLFLOW_TEMPERATURE", None, minimum=0, maximum=2, is_whole=False)
TOOLFLOW_MAX_TOKENS = env.read_number("TOOLFLOW_MAX_TOKENS", None, minimum=1)
TOOLFLOW_REASONING_EFFORT = env.read_choice("TOOLFLOW_REASONING_EFFORT", "", tuple(ReasoningEffort)) or None
TOOLFLOW_SERVICE_TIER = env.read_choice("TOOLFLOW_SERVICE_TIER", "", tuple(ServiceTier)) or None

TOOLFLOW_CALL_TIMEOUT = env.read_number("TOOLFLOW_CALL_TIMEOUT", 120, minimum=1)
"""Seconds that one model call may take; calls of the service tier flex have 15 minutes at least."""
TOOLFLOW_STOP_SECONDS = env.read_number("TOOLFLOW_STOP_SECONDS", 150, minimum=0)
"""Seconds that a stopping worker waits for calls in flight before it interrupts them."""
TOOLFLOW_RUNS_IN_FLIGHT = env.read_number("TOOLFLOW_RUNS_IN_FLIGHT", 200, minimum=1, maximum=10_000)
"""How many runs one worker process has under way at the same time."""
TOOLFLOW_WORKERS = env.read_number("TOOLFLOW_WORKERS", 2, minimum=2, maximum=64)
"""Worker processes of this host. All but one execute runs, so that sweeps always find a free one."""
TOOLFLOW_LEASE = env.read_number("TOOLFLOW_LEASE", 60, minimum=2, maximum=600)
"""Seconds that a worker without a heartbeat keeps its runs."""
TOOLFLOW_SEVERAL_HOSTS = env.read_flag("TOOLFLOW_SEVERAL_HOSTS", default=False)
"""Whether web servers or workers run on several hosts: then the checks refuse what only works on one."""
TOOLFLOW_PLUGINS = env.read_list(
    "TOOLFLOW_PLUGINS",
    ["flows.examples.plugins"],
    validate=lambda module: all(part.isidentifier() for part in module.split(".")),
    expected="Python modules such as company.audits",
)
TOOLFLOW_PLUGIN_TIMEOUT = env.read_number("TOOLFLOW_PLUGIN_TIMEOUT", 60, minimum=1, maximum=3600)
"""Seconds that one call of a plug-in may take."""
TOOLFLOW_PLUGIN_WAIT = env.read_number("TOOLFLOW_PLUGIN_WAIT", 900, minimum=0, maximum=604_800)
"""Seconds that a run waits for a worker that has the plug-ins of its version."""

TOOLFLOW_KEEP_DAYS = env.read_number("TOOLFLOW_KEEP_DAYS", None, minimum=1, maximum=36_500)
TOOLFLOW_KEEP_OUTPUTS_DAYS = env.read_number("TOOLFLOW_KEEP_OUTPUTS_DAYS", None, minimum=1, maximum=36_500)
"""Days from its end that a run is kept, and what it read and wrote, where its flow says nothing; for ever if None."""
if TOOLFLOW_KEEP_DAYS is not None and (TOOLFLOW_KEEP_OUTPUTS_DAYS or 0) > TOOLFLOW_KEEP_DAYS:
    raise ImproperlyConfigured(
        f"TOOLFLOW_KEEP_OUTPUTS_DAYS is “{TOOLFLOW_KEEP_OUTPUTS_DAYS}”; outputs go with their runs, so it must be at "
        f"most the {TOOLFLOW_KEEP_DAYS} of TOOLFLOW_KEEP_DAYS."
    )

TOOLFLOW_API_MAX_BODY = env.read_number("TOOLFLOW_API_MAX_BODY", 10_000_000, minimum=10_000)
"""Bytes that the body of a request to the API may have."""
TOOLFLOW_API_READS_PER_MINUTE = env.read_number("TOOLFLOW_API_READS_PER_MINUTE", 12_000, minimum=1)
TOOLFLOW_API_WRITES_PER_MINUTE = env.read_number("TOOLFLOW_API_WRITES_PER_MINUTE", 12_000, minimum=1)
"""Requests to the API that a token may make, or a user who is signed in on the pages."""
TOOLFLOW_API_STRANGERS_PER_MINUTE = env.read_number("TOOLFLOW_API_STRANGERS_PER_MINUTE", 600, minimum=1)
"""Requests to the API that one address may make without a token that lets it in."""

TOOLFLOW_WEBHOOK_ALLOW = env.read_list(
    "TOOLFLOW_WEBHOOK_ALLOW",
    validate=Target.parse,
    expected="hosts (hooks.example.com, *.example.com), addresses (192.0.2.7, [fd00::7]) or networks (10.0.0.0/8), "
    "each with a colon and its port (80, 443, one above 1024, or * for all) unless that is 443, and none where clouds "
    "keep secrets of a machine",
)
"""Hosts and networks, with their ports, that webhooks may reach besides the internet, and without TLS."""

TOOLFLOW_ALLOWED_HOSTS = env.read_list("TOOLFLOW_ALLOWED_HOSTS")
TOOLFLOW_URL_PREFIX = env.read_value(
    "TOOLFLOW_URL_PREFIX",
    "",
    lambda text: re.fullmatch(r"((?:/[A-Za-z0-9._~-]+)*)/?", text)[1],  # type: ignore[index]  # None is not valid
    "a path such as /toolflow, of letters, digits, “-”, “.”, “_” and “~”",
)
"""The path below which everything lies, such as ``/toolflow``; empty if ToolFlow has a host for itself."""
TOOLFLOW_TRUSTED_PROXIES = env.read_list(
    "TOOLFLOW_TRUSTED_PROXIES", validate=ip_network, expected="addresses (127.0.0.1) or networks (172.16.0.0/12)"
)
"""Addresses and networks of proxies that say where a request came from and whether it came through TLS."""
TOOLFLOW_MAX_BODY = env.read_number("TOOLFLOW_MAX_BODY", 20_000_000, minimum=10_000)
"""Bytes that the body of any request may have."""
TOOLFLOW_WEB_PROCESSES = env.read_number("TOOLFLOW_WEB_PROCESSES", 1, minimum=1, maximum=64)
"""Processes that serve pages and the API on this host."""
TOOLFLOW_WEB_CONNECTIONS = env.read_number("TOOLFLOW_WEB_CONNECTIONS", 1000, minimum=10, maximum=100_000)
"""Connections that each of them has open at the same time; further ones get 503."""

TOOLFLOW_LOG_FORMAT = env.read_choice("TOOLFLOW_LOG_FORMAT", "json" if _IS_PRODUCTION else "plain", FORMATS)
TOOLFLOW_LOG_LEVEL = env.read_text("TOOLFLOW_LOG_LEVEL") and env.read_choice("TOOLFLOW_LOG_LEVEL", "", LEVELS)
"""Empty for one that fits the format: see ``runs/observability/log_lines.py``."""
TOOLFLOW_ACCESS_LOG = env.read_choice(
    "TOOLFLOW_ACCESS_LOG",
    "without-probes" if TOOLFLOW_LOG_FORMAT == "json" else "none",
    ("all", "without-probes", "none"),
)
"""Which requests have a line in the log."""
TOOLFLOW_METRICS_TOKEN = env.read_secret("TOOLFLOW_METRICS_TOKEN")
"""The token that lets a client read metrics; without one the address doesn't exist."""
TOOLFLOW_WEB_METRICS_DIR = env.read_text("PROMETHEUS_MULTIPROC_DIR")
"""Where the processes of one web server count requests together; "manage.py serve" sees to it."""
TOOLFLOW_WORKER_METRICS_PORT = env.read_number("TOOLFLOW_WORKER_METRICS_PORT", None, minimum=1, maximum=65_000)
"""The first of the ports on which the processes of the worker serve what they measure."""
TOOLFLOW_WORKER_METRICS_HOST = env.read_value(
    "TOOLFLOW_WORKER_METRICS_HOST", "127.0.0.1", lambda text: str(ip_address(text)), "an address such as 127.0.0.1"
)
"""The address of this host on which they do."""
if TOOLFLOW_WORKER_METRICS_PORT and not TOOLFLOW_METRICS_TOKEN:
    raise ImproperlyConfigured("TOOLFLOW_WORKER_METRICS_PORT is set, but TOOLFLOW_METRICS_TOKEN is not: set both.")
TOOLFLOW_TRACES = env.read_base_url("TOOLFLOW_TRACES")
"""The collector that traces of runs go to, as OTLP over HTTP; without it none are made."""
TOOLFLOW_TRACE_CONTENT = env.read_flag("TOOLFLOW_TRACE_CONTENT", default=False)
"""Whether traces hold what was sent to the model and what came back."""
TOOLFLOW_PLAIN_HTTP_HOSTS = env.read_list("TOOLFLOW_PLAIN_HTTP_HOSTS")
"""Hosts that production may send keys and content to without TLS."""

# Django

SECRET_KEY = env.read_secret_key("TOOLFLOW_SECRET_KEY", None if _IS_PRODUCTION else TOOLFLOW_DATA_DIR / "secret_key")
SECRET_KEY_FALLBACKS = env.read_secret("TOOLFLOW_SECRET_KEY_FALLBACKS").split()
DEBUG = env.read_flag("TOOLFLOW_DEBUG", default=False)
ALLOWED_HOSTS = TOOLFLOW_ALLOWED_HOSTS or ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
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
    "drf_spectacular_sidecar",
    "flows",
    "runs",
    "axes",
]

MIDDLEWARE = [
    # Both outside of all else: their headers are on every answer.
    "csp.middleware.CSPMiddleware",
    "toolflow_site.middleware.identify_requests",
    "django.middleware.security.SecurityMiddleware",
    "toolflow_site.middleware.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "toolflow_site.middleware.PageMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "toolflow_site.urls"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_PARTS_DIR / "templates"],
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
    "default": build_database(
        "DATABASE_URL",
        env.read_secret("DATABASE_URL"),
        sqlite_path=TOOLFLOW_DATA_DIR / "toolflow.sqlite3",
        base=BASE_DIR,
    ),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
SESSION_ENGINE = "runs.models.account"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = f"{TOOLFLOW_URL_PREFIX}/"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}Validator"}
    for name in ("UserAttributeSimilarity", "MinimumLength", "CommonPassword", "NumericPassword")
]

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = env.read_value(
    "TOOLFLOW_TIME_ZONE", "UTC", lambda text: ZoneInfo(text).key, "the name of a time zone such as Europe/Vienna"
)

FORCE_SCRIPT_NAME = TOOLFLOW_URL_PREFIX or None

STATIC_URL = f"{TOOLFLOW_URL_PREFIX}/static/"
STATICFILES_DIRS = [_PARTS_DIR / "static"]
GUIDES_DIR = _PARTS_DIR / "docs"
_STATIC_ROOT = env.read_path("TOOLFLOW_STATIC_ROOT", TOOLFLOW_DATA_DIR / "static", base=BASE_DIR)
# WhiteNoise warns of a directory that is not there.
STATIC_ROOT = _STATIC_ROOT if _IS_PRODUCTION or _STATIC_ROOT.is_dir() else None
# In development served straight from the installed packages and static/: there is nothing to collect first.
WHITENOISE_USE_FINDERS = not _IS_PRODUCTION
WHITENOISE_ALLOW_ALL_ORIGINS = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        # In production names carry a hash of the content, so that browsers keep files for ever.
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _IS_PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage",
    },
}

# A flow with all its steps and audits is one form.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000

# Security

CSRF_FAILURE_VIEW = "toolflow_site.errors.show_expired_form"
CSRF_TRUSTED_ORIGINS = env.read_list(
    "TOOLFLOW_CSRF_TRUSTED_ORIGINS",
    validate=re.compile(r"https?://[^/?#]+").fullmatch,
    expected="origins such as https://flows.example.com",
)
# An installation whose origins are all HTTPS serves through TLS; the embedded default has none.
TOOLFLOW_HTTPS = env.read_flag(
    "TOOLFLOW_HTTPS",
    default=_IS_PRODUCTION
    or (bool(CSRF_TRUSTED_ORIGINS) and all(origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS)),
)
"""Whether browsers reach the website through TLS: then cookies are sent through TLS only."""
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TOOLFLOW_HTTPS
# Other applications may lie on the same host.
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{TOOLFLOW_URL_PREFIX}/"

_IS_HTTPS_ONLY = _IS_PRODUCTION and TOOLFLOW_HTTPS
SECURE_SSL_REDIRECT = _IS_HTTPS_ONLY
SECURE_REDIRECT_EXEMPT = [r"^(.*/)?(healthz|readyz|metrics)$"]
SECURE_HSTS_SECONDS = env.read_number(
    "TOOLFLOW_HSTS_SECONDS", 3600 if _IS_HTTPS_ONLY else 0, minimum=0, maximum=63_072_000
)
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.read_flag("TOOLFLOW_HSTS_SUBDOMAINS", default=False)
# What holds for other names of the domain, and for ever in the lists of browsers, is not our decision.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

SESSION_COOKIE_AGE = 3600 * env.read_number("TOOLFLOW_SESSION_HOURS", 336, minimum=1, maximum=8760)
TOOLFLOW_TOKEN_MAX_DAYS = env.read_number("TOOLFLOW_TOKEN_MAX_DAYS", None, minimum=1, maximum=3650)
"""Days that a new API token may last; without it any number, and for ever."""

# Signing in: see toolflow_site/sign_in.py.
AXES_HANDLER = "toolflow_site.sign_in.SignInThrottle"
AXES_LOCKOUT_CALLABLE = "toolflow_site.sign_in.show_lockout"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address", "username"]
AXES_FAILURE_LIMIT = env.read_number("TOOLFLOW_SIGN_IN_TRIES", 5, minimum=2, maximum=100)
AXES_COOLOFF_TIME = timedelta(minutes=env.read_number("TOOLFLOW_LOCKOUT_MINUTES", 15, minimum=1, maximum=1440))
# Further failures do not lengthen it.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "toolflow_site.sign_in.read_address"
AXES_USERNAME_CALLABLE = "toolflow_site.sign_in.name_attempt"
# The audit log holds it, without what may be a password in the wrong field.
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
AXES_SENSITIVE_PARAMETERS = [
    *("username", "ip_address", "csrfmiddlewaretoken", "next", "old_password", "new_password1", "new_password2"),
    *("code", "state"),
]

# Signing in through a provider of OpenID Connect: see toolflow_site/openid.py. Off, and not even loaded, without one.
TOOLFLOW_OIDC_ISSUER = env.read_base_url("TOOLFLOW_OIDC_ISSUER")
TOOLFLOW_OIDC_NAME = env.read_text("TOOLFLOW_OIDC_NAME", "Your organisation")
TOOLFLOW_OIDC_DOMAINS = env.read_list("TOOLFLOW_OIDC_DOMAINS")
TOOLFLOW_OIDC_GROUPS = env.read_pairs("TOOLFLOW_OIDC_GROUPS")
TOOLFLOW_OIDC_GROUPS_CLAIM = env.read_text("TOOLFLOW_OIDC_GROUPS_CLAIM", "groups")
TOOLFLOW_OIDC_LINK = env.read_list("TOOLFLOW_OIDC_LINK")
"""Names of accounts with a password that are linked to the first user with their e-mail address."""
TOOLFLOW_OIDC_EMAILS_VERIFIED = env.read_flag("TOOLFLOW_OIDC_EMAILS_VERIFIED", default=False)
"""Whether addresses are accepted from a provider that doesn't say whether it verified them."""
OIDC_RP_CLIENT_ID = env.read_text("TOOLFLOW_OIDC_CLIENT_ID")
OIDC_RP_CLIENT_SECRET = env.read_secret("TOOLFLOW_OIDC_CLIENT_SECRET")
OIDC_RP_SCOPES = env.read_text("TOOLFLOW_OIDC_SCOPES", "openid email profile")
OIDC_RP_SIGN_ALGO = "RS256"
OIDC_USE_PKCE = True
OIDC_TIMEOUT = 10
OIDC_MAX_STATES = 5  # sign-ins under way in one browser, kept in a cookie, which may have 4 KB
if TOOLFLOW_OIDC_ISSUER:
    if not OIDC_RP_CLIENT_ID:
        raise ImproperlyConfigured("TOOLFLOW_OIDC_ISSUER is set, but TOOLFLOW_OIDC_CLIENT_ID is not; set it too.")
    if not (TOOLFLOW_OIDC_DOMAINS or TOOLFLOW_OIDC_GROUPS):
        raise ImproperlyConfigured(
            "TOOLFLOW_OIDC_ISSUER is set, but nothing says who of its users may sign in; set TOOLFLOW_OIDC_DOMAINS or "
            "TOOLFLOW_OIDC_GROUPS."
        )
    # After the backend that knows lock-outs.
    AUTHENTICATION_BACKENDS.insert(1, "toolflow_site.openid.OpenIDBackend")

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
    # What is wanted is in the Accept header; a parameter that no endpoint knows is refused like any other.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = api_description.OPENAPI

# The queue

Q_CLUSTER = {
    "name": "toolflow",
    "workers": TOOLFLOW_WORKERS,
    # The clock of `retry` starts when a message is fetched: none may wait behind another.
    "queue_limit": 1,
    "bulk": 1,
    # For sweeps, webhooks, bulk actions and retention. The drain is a task without a timeout.
    "timeout": 480,
    "retry": 600,
    # The Run table is the truth: a failed message is done with, and the sweep finds what it left.
    "ack_failures": True,
    "max_attempts": 1,
    "save_limit": -1,
    "catch_up": False,
    "recycle": 100,
    "poll": 0.2,
    **build_broker("TOOLFLOW_REDIS_URL", env.read_secret("TOOLFLOW_REDIS_URL")),
}

# Caches

CACHES = build_caches(Q_CLUSTER.get("redis"))

LOGGING = build_logging(format=TOOLFLOW_LOG_FORMAT, level=TOOLFLOW_LOG_LEVEL)
# What matters of its messages at INFO is in the audit log.
LOGGING["loggers"]["axes"] = {"level": "WARNING"}
LOGGING["filters"] = {"brief_refusals": {"()": "toolflow_site.errors.BriefRefusals"}}
LOGGING["handlers"]["stderr"]["filters"] = ["brief_refusals"]

if _IS_PRODUCTION:
    production.require_safe(globals())
