"""Which settings the pod of one callback gets: options, rules and the Dag author's choice. Pure.

Weakest first: the options of ``[kubernetes_callbacks]``, the first rule whose ``match`` fits (or the
rule that the Dag author names), the resources that the Dag author asks for. A rule looks like this:

.. code-block:: yaml

    - name: heavy                # optional; the name by which a Dag author may choose it
      match:                     # optional; without it the rule is used only by name
        callback: "alerts.*"     # a glob, or a list of them; all kinds that are given must fit ("*": all)
        dag_id: ["etl_*", "ml_*"]
        team: data
        executor: kubernetes
      pod:
        resources: {limits: {memory: 2Gi}}

Reading a rules file is an effect and happens in :func:`load_rules` alone, once at start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from airflow_kubernetes_callbacks.errors import LaunchError, SettingsError
from airflow_kubernetes_callbacks.pod_settings import PodSettings, merged
from airflow_kubernetes_callbacks.settings import SECTION
from airflow_kubernetes_callbacks.yaml_source import YamlSource

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.author_options import AuthorOptions
    from airflow_kubernetes_callbacks.settings import CallbackSettings

#: A callback in a Dag's own file has a module name that starts with a hash of the file's path.
_DAG_FILE_PREFIX = re.compile(r"^unusual_prefix_[0-9a-f]+_")

#: The options that are pod settings, by the same name in both.
POD_OPTIONS = tuple(PodSettings.model_fields)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rule can match on."""

    callback_path: str
    dag_id: str
    team: str | None = None
    #: Every name that the executor answers to: alias, class name, module path.
    executor: tuple[str, ...] = ()


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Globs = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_list), Field(min_length=1)
]


class Match(BaseModel):
    """The conditions of a rule; those that are given must all fit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    callback: Globs | None = None
    dag_id: Globs | None = None
    team: Globs | None = None
    executor: Globs | None = None

    def fits(self, subject: Subject) -> bool:
        path = subject.callback_path
        return (
            _fits(self.callback, (path, _DAG_FILE_PREFIX.sub("", path)))
            and _fits(self.dag_id, (subject.dag_id,))
            and _fits(self.team, (subject.team,) if subject.team else ())
            and _fits(self.executor, subject.executor)
        )


def _fits(globs: tuple[str, ...] | None, values: tuple[str, ...]) -> bool:
    return globs is None or any(fnmatchcase(value, glob) for glob in globs for value in values)


class Rule(BaseModel):
    """One rule: what it is for, and what it gives."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1)] | None = None
    match: Match | None = None
    pod: PodSettings


@dataclass(frozen=True, slots=True)
class PodRules:
    """Everything that configuration says about callback pods."""

    options: PodSettings
    rules: tuple[Rule, ...] = ()

    def rule_named(self, name: str) -> Rule:
        """Return the rule of this name.

        :raises LaunchError: if there is none.
        """
        for rule in self.rules:
            if rule.name == name:
                return rule
        known = ", ".join(rule.name for rule in self.rules if rule.name) or "there is none with a name"
        raise LaunchError(
            f"the callback asks for the rule {name!r}, which [{SECTION}] does not have ({known}). "
            "Correct the kubernetes_callback kwarg of its SyncCallback, or add the rule."
        )

    def settings_for(self, subject: Subject, author: AuthorOptions | None = None) -> PodSettings:
        """Return the settings of the pod for this callback.

        :raises LaunchError: if the Dag author names a rule that does not exist.
        """
        if author and author.rule:
            chosen: Rule | None = self.rule_named(author.rule)
        else:
            chosen = next((rule for rule in self.rules if rule.match and rule.match.fits(subject)), None)
        settings = merged(self.options, chosen.pod) if chosen else self.options
        if author and author.resources:
            settings = merged(settings, PodSettings(resources=author.resources))
        return settings

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces that options and rules name: callback pods may come to be in them."""
        every = (self.options, *(rule.pod for rule in self.rules))
        return frozenset(settings.namespace for settings in every if settings.namespace)

    @property
    def template_files(self) -> frozenset[str]:
        """The template files that options and rules name, to be checked at start."""
        every = (self.options, *(rule.pod for rule in self.rules))
        return frozenset(settings.pod_template_file for settings in every if settings.pod_template_file)


def load_rules(settings: CallbackSettings) -> PodRules:
    """Read and check the pod options and the rules, from the option or from its file.

    :raises SettingsError: names the option or the file, the line and the key, and what is wrong there.
    """
    if settings.rules and settings.rules_file:
        raise SettingsError(f"[{SECTION}] has both rules and rules_file; keep one of them.")
    if settings.rules_file:
        try:
            text = Path(settings.rules_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"[{SECTION}] rules_file = {settings.rules_file!r} cannot be read: {error}. "
                "Give the path of a YAML file that the scheduler can read, or remove the option."
            ) from error
        return PodRules(_options(settings), parse_rules(text, settings.rules_file))
    return PodRules(_options(settings), parse_rules(settings.rules, f"[{SECTION}] rules"))


def _options(settings: CallbackSettings) -> PodSettings:
    values = {name: getattr(settings, name) for name in POD_OPTIONS}
    try:
        return PodSettings.model_validate({name: value for name, value in values.items() if value})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option, *inside = first["loc"]
        where = "".join(f".{part}" for part in inside)
        raise SettingsError(f"[{SECTION}] {option}{where}: {_words(first)}. Correct or remove it.") from error


_RULES = TypeAdapter(tuple[Rule, ...])


def parse_rules(text: str, source: str) -> tuple[Rule, ...]:
    """Return the rules in a YAML (or JSON) text.

    :param source: what the text comes from, for messages.
    :raises SettingsError: names line and key.
    """
    document = YamlSource(text, source)
    if document.value is None:
        return ()
    if not isinstance(document.value, list):
        raise document.error((), "the rules must be a list")
    try:
        rules = _RULES.validate_python(document.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise document.error(first["loc"], _words(first)) from error
    seen: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if rule.name is not None and seen.setdefault(rule.name, index) != index:
            raise document.error((index, "name"), f"there is already a rule named {rule.name!r}")
        _refuse_empty_match(document, index, rule)
        if rule.name is None and rule.match is None:
            raise document.error((index,), "a rule needs a match, a name or both, or it is never used")
    return rules


def _refuse_empty_match(document: YamlSource, index: int, rule: Rule) -> None:
    """Refuse conditions that were begun and not written: as ones that always fit they would take over."""
    if "match" not in rule.model_fields_set:
        return
    title = "this rule" if rule.name is None else f"the rule {rule.name!r}"
    if rule.match is None or not rule.match.model_fields_set:
        raise document.error(
            (index, "match"),
            f'{title} has a match without conditions; write callback: "*" if it is for all callbacks, or '
            "remove match if it is used by its name only",
        )
    for kind in sorted(rule.match.model_fields_set):
        if getattr(rule.match, kind) is None:
            raise document.error(
                (index, "match", kind),
                f"{title} has a condition without a value; give it a glob or a list of them, or remove it (a "
                'rule for all callbacks has callback: "*")',
            )


def _words(error: Any) -> str:
    """Return pydantic's complaint in the words of a person who writes rules."""
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
