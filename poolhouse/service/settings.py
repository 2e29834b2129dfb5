"""Settings of a service, read from environment variables.

A service declares its own settings in a subclass:

    class Settings(ServiceSettings):
        listen: ListenAddress = listen_setting("127.0.0.1:8443")
        burst: int = setting(
            "POOLHOUSE_BURST", 250, "VMs that the controllers create or update at once for one pool.", ge=1
        )
        deadline_seconds: float = setting(
            "POOLHOUSE_DEADLINE_SECONDS", 2, "After this time a request gets 503.", unit="seconds", gt=0
        )

    settings = Settings.read(os.environ)   # ValueError: POOLHOUSE_BURST: Invalid value: "x": must be ...

An empty variable counts as unset. `reference(Settings)` describes the settings for docs/reference/settings.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from poolhouse.service.logs import Format

DEFAULT_NAMESPACE = "poolhouse-system"

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class Address(NamedTuple):
    host: str
    port: int


def parse_address(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    host, _, port = value.rpartition(":")
    if not port.isdecimal() or int(port) > 65535 or not host:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:8080 or [::]:8080")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


ListenAddress = Annotated[Address, BeforeValidator(parse_address)]


def split(value: Any) -> Any:
    """Splits a text at its commas. Returns any other value as it is, and the setting's type is checked afterwards."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def setting(variable: str, default: Any, description: str, *, unit: str = "", **bounds: Any) -> Any:
    """A field of a settings class. `bounds` are pydantic's: `ge`, `gt`, `le`, `lt`, `pattern`, `max_length`."""
    return Field(
        default, validation_alias=variable, description=description, json_schema_extra={"unit": unit}, **bounds
    )


def listen_setting(default: str) -> Any:
    description = (
        "Address to serve on, `HOST:PORT`. An IPv6 host is in brackets; `[::]` is every address, also of IPv4. "
        "Port 0 is any free port."
    )
    return setting("POOLHOUSE_LISTEN", parse_address(default), description)


class EnvironmentSettings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", case_sensitive=True, populate_by_name=True, enable_decoding=False
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Parses the variables. Raises ValueError with a message that names every invalid variable."""
        source = EnvSettingsSource(cls)
        source.env_vars = {name: value for name, value in environment.items() if value}
        try:
            return cls(**source())
        except ValidationError as error:
            raise ValueError("; ".join(_messages(cls, error))) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Disables pydantic's own sources. `read` gets the environment, so that services in a process may differ."""
        return (init_settings,)


class LogSettings(EnvironmentSettings):
    log_format: Format = setting("POOLHOUSE_LOG_FORMAT", "text", "Format of log lines.")
    log_level: Annotated[LogLevel, BeforeValidator(str.upper)] = setting(
        "POOLHOUSE_LOG_LEVEL", "INFO", "Lowest level of the log lines that are written."
    )


class ServerSettings(LogSettings):
    listen: ListenAddress = listen_setting("127.0.0.1:0")
    tls: Path | None = setting(
        "POOLHOUSE_TLS_DIR",
        None,
        "Directory of `tls.crt`, `tls.key` and `ca.crt`. The service reads changed files again. Empty: plain HTTP.",
    )

    @property
    def host(self) -> str:
        return self.listen.host

    @property
    def port(self) -> int:
        return self.listen.port


class IdentitySettings(EnvironmentSettings):
    """The seed from which the identities of VMs follow. A directory keeps it out of the environment, which everybody
    who may read Pods can read."""

    identity_seed: str = setting(
        "POOLHOUSE_IDENTITY_SEED",
        "",
        "Seed of MAC addresses, firmware UUIDs and serials: with another seed, equal names get other ones.",
    )
    identity_dir: Path | None = setting(
        "POOLHOUSE_IDENTITY_DIR",
        None,
        "Directory whose file `seed` has the seed, such as a mounted Secret. It takes the place of"
        " POOLHOUSE_IDENTITY_SEED.",
    )
    _seed: str = PrivateAttr("")

    @model_validator(mode="after")
    def _read_seed(self) -> Self:
        """Reads the file at the start. Without the file the service must not start, because another seed gives new VMs
        other addresses."""
        self._seed = self.identity_seed
        if self.identity_dir is not None:
            if self.identity_seed:
                raise ValueError("POOLHOUSE_IDENTITY_SEED: must be empty with POOLHOUSE_IDENTITY_DIR")
            try:
                self._seed = (self.identity_dir / "seed").read_text().removesuffix("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"POOLHOUSE_IDENTITY_DIR: the seed cannot be read: {error}") from None
        return self

    @property
    def seed(self) -> str:
        return self._seed


class ServiceSettings(ServerSettings):
    """A service that uses the Kubernetes API and may get its certificate from a Secret."""

    tls_secret: str = setting(
        "POOLHOUSE_TLS_SECRET", "", "Secret whose data is copied into POOLHOUSE_TLS_DIR whenever it changes."
    )
    namespace: str = setting(
        "POOLHOUSE_NAMESPACE", DEFAULT_NAMESPACE, "Namespace of the Leases and Secrets of Poolhouse."
    )

    @model_validator(mode="after")
    def _tls_secret_needs_a_directory(self) -> Self:
        if self.tls_secret and self.tls is None:
            raise ValueError("POOLHOUSE_TLS_SECRET: POOLHOUSE_TLS_DIR is required: the directory for its files")
        return self


@dataclass(frozen=True)
class SettingReference:
    variable: str
    allowed: str
    default: str
    unit: str
    description: str
    required: bool


def reference(settings: type[EnvironmentSettings]) -> Iterator[SettingReference]:
    """The settings of a class, for the reference page."""
    properties = settings.model_json_schema()["properties"]
    for field in settings.model_fields.values():
        variable = str(field.validation_alias)
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        required = field.is_required()
        default = None if required else field.get_default(call_default_factory=True, validated_data={})
        yield SettingReference(
            variable,
            allowed=_allowed(properties[variable]),
            default=_text(default),
            unit=str(extra["unit"]),
            description=field.description or "",
            required=required,
        )


def _text(default: Any) -> str:
    if isinstance(default, Address):
        return f"[{default.host}]:{default.port}" if ":" in default.host else f"{default.host}:{default.port}"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, frozenset | tuple | list):
        return ",".join(map(str, default))
    return "" if default is None else str(default)


def _messages(settings: type[EnvironmentSettings], error: ValidationError) -> Iterator[str]:
    properties = settings.model_json_schema()["properties"]
    for each in error.errors():
        if not each["loc"]:
            yield str(each["ctx"]["error"])  # the error of a model_validator names the variables
            continue
        variable = str(each["loc"][0])
        if each["type"] == "value_error":
            problem = str(each["ctx"]["error"]).removeprefix(f"{variable}: ")
        else:
            problem = f"must be {_allowed(properties[variable]) or 'text'}"
        # The input of a missing setting is all other settings, among them secrets.
        found = "Required value" if each["type"] == "missing" else f'Invalid value: "{each["input"]!s:.80}"'
        yield f"{variable}: {found}: {problem}"


def _allowed(schema: Mapping[str, Any]) -> str:
    """The values that the JSON schema of a setting allows, as text."""
    if "anyOf" in schema:
        return next(filter(None, map(_allowed, schema["anyOf"])), "")
    if "enum" in schema:
        *first, last = schema["enum"]
        return f"{', '.join(first)} or {last}"
    text = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}.get(
        schema.get("type", ""), ""
    )
    bounds = [
        f"{words} {schema[bound]:g}"
        for bound, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "greater than"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "less than"),
        )
        if bound in schema
    ]
    if "pattern" in schema:
        bounds.append(f"text that matches `{schema['pattern']}`")
    return ", ".join(filter(None, [text, " and ".join(bounds)]))
