"""README and docs say what is so: every code block is run or parsed, every link leads somewhere."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if not {"_build", "_generated"} & set(page.parts)
)
FENCE = re.compile(r"^( *)```(\{?\w*\}?)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: Providers that an example may import and that are not installed here: such a block is compiled only.
NOT_INSTALLED = ("airflow.providers.amazon",)
#: Words that stand for something of the reader's.
PLACEHOLDERS = {"REPOSITORY", "NAME", "ID"}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks(*languages):
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            indent, language, body = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
            found.append(Block(page, line, language, body))
    chosen = [block for block in found if not languages or block.language in languages]
    return pytest.mark.parametrize("block", [pytest.param(block, id=block.name) for block in chosen])


@_blocks()
def test_language_of_block_is_one_that_is_checked(block):
    checked = {"python", "ini", "yaml", "console", "dockerfile"}
    assert block.language in checked | {"text", "mermaid", "{toctree}"}


@_blocks("python")
def test_python_block_runs(block):
    code = compile(block.text, block.name, "exec", dont_inherit=True)
    if not any(module in block.text for module in NOT_INSTALLED):
        exec(code, {"__name__": "documentation"})


@_blocks("ini")
def test_ini_block_has_options_that_exist_and_values_that_are_accepted(block):
    from airflow.configuration import conf

    from airflow_kubernetes_callbacks.errors import SettingsError
    from airflow_kubernetes_callbacks.rules import load_rules
    from airflow_kubernetes_callbacks.settings import SECTION, load_settings

    parser = configparser.RawConfigParser(interpolation=None)
    parser.read_string(block.text)
    for section in parser.sections():
        if section == "aws_eks_executor":  # of a provider that is not installed here
            continue
        described = conf.configuration_description.get(section, {}).get("options", {})
        for option in parser.options(section):
            assert option in described, f"there is no [{section}] {option}"
    values = dict(parser.items(SECTION)) if parser.has_section(SECTION) else {}

    class Reader:
        def get(self, section, key, **kwargs):
            return values.get(key, kwargs.get("fallback"))

    settings = load_settings(Reader())
    if not settings.rules_file:
        load_rules(settings)
    else:
        with pytest.raises(SettingsError, match="cannot be read"):
            load_rules(settings)


@_blocks("yaml")
def test_yaml_block_parses_and_kubernetes_knows_it(block):
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

    from airflow_kubernetes_callbacks.rules import parse_rules

    documents = list(yaml.safe_load_all(block.text))
    assert documents
    first = block.text.lstrip().splitlines()[0]
    if first.startswith("# rules"):
        assert parse_rules(block.text, block.name)
        return
    for document in documents:
        if first.startswith("# values.yaml"):
            assert isinstance(document, dict)
            continue
        assert document["apiVersion"], block.name
        assert document["metadata"]["name"], block.name
        if document["kind"] == "Pod":
            pod = PodGenerator.deserialize_model_dict(document)
            assert "base" in [container.name for container in pod.spec.containers]


def test_roles_in_the_docs_are_the_ones_that_check_prints():
    from airflow_kubernetes_callbacks.cli.preflight import needed_access, role_yaml

    text = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    documents = [yaml.safe_load(match[3]) for match in FENCE.finditer(text) if match[2] == "yaml"]
    for document, delivery in zip(documents, ("secret", "argument"), strict=True):
        assert document == yaml.safe_load(role_yaml("airflow", needed_access(delivery)))


def test_role_for_a_namespace_of_its_own_is_that_of_the_security_page():
    from airflow_kubernetes_callbacks.cli.preflight import needed_access, role_yaml

    text = (ROOT / "docs/how-to/own-namespace.md").read_text(encoding="utf-8")
    documents = [
        document
        for match in FENCE.finditer(text)
        if match[2] == "yaml"
        for document in yaml.safe_load_all(match[3])
    ]
    (role,) = [document for document in documents if document["kind"] == "Role"]
    assert role == yaml.safe_load(role_yaml("airflow-alerts", needed_access("secret")))


@pytest.fixture(scope="module")
def parser():
    from airflow.cli import cli_parser

    return cli_parser.get_parser()


@_blocks("console", "dockerfile")
def test_commands_parse(block, parser, capsys):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if " -- " in line:  # kubectl exec ... -- airflow ...
            words = words[words.index("--") + 1 :]
        if not words:
            continue
        match words[0]:
            case "airflow":
                _parses(parser, words[1:], capsys)
            case "make":
                assert next(word for word in words[1:] if "=" not in word) in targets, line
            case "kubectl":
                assert words[1] in {"apply", "delete", "exec", "get", "patch"}, line
            case "helm" | "git" | "pip" | "cd" | "export" | "FROM" | "RUN":
                pass
            case other:
                pytest.fail(f"{other!r} is no command that is known here: {line}")


def _parses(parser, arguments, capsys):
    try:
        parser.parse_args(arguments)
    except SystemExit as end:
        assert end.code == 0 and "--help" in arguments, capsys.readouterr().err  # noqa: PT018


def test_commands_in_sentences_parse(parser, capsys):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    found = {"airflow": 0, "make": 0}
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for command in re.findall(r"`((?:airflow|make) [^`]+)`", text):
            words = shlex.split(command)
            found[words[0]] += 1
            if words[0] == "make":
                assert words[1] in targets, f"{page.name}: {command}"
            elif words[1] == "kubernetes-callbacks" and len(words) > 2:
                _parses(parser, words[1:], capsys)
    assert min(found.values()) >= 3


def test_distribution_that_is_installed_is_this_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    installed = [
        word
        for page in PAGES
        for line in re.findall(r"pip install ([^`\n]*)", page.read_text(encoding="utf-8"))
        for word in line.split()
        if not word.startswith("-")
    ]
    assert installed.count(project) >= 2
    assert set(installed) == {project, "dist/*.whl"}


def test_every_command_and_option_is_in_the_reference():
    from airflow_kubernetes_callbacks.cli.definition import COMMANDS

    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        section = text.split(f"\n## {command.name}\n")[1].split("\n## ")[0]
        for argument in command.args:
            option = next((flag for flag in reversed(argument.flags) if flag.startswith("--")), None)
            common = ("--output", "--verbose")
            assert option is None or option in common or option in section, f"{command.name} {option}"


def test_metrics_in_the_docs_are_the_ones_that_are_sent():
    from airflow_kubernetes_callbacks.actions import FailureKind
    from airflow_kubernetes_callbacks.metrics import METRICS

    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    sent = [(m.name, m.type, ", ".join(f"`{tag}`" for tag in m.tags), m.meaning) for m in METRICS]
    assert told == sent
    assert {kind.value for kind in FailureKind} <= set(re.findall(r"^- \*\*`(\w+)`\*\*:", page, re.MULTILINE))


def test_labels_and_annotations_in_the_docs_are_the_ones_of_the_pod():
    from airflow_kubernetes_callbacks import identity

    page = (ROOT / "docs/reference/pod.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`([\w/.-]+)`", page))
    assert told >= identity.RESERVED_KEYS
    assert identity.RESULT_FINALIZER in told


def _options():
    from airflow.configuration import conf

    return {
        (section, option)
        for section, described in conf.configuration_description.items()
        for option in described["options"]
    }


def test_options_in_sentences_exist():
    named = {
        (page.name, section, option)
        for page in PAGES
        for section, option in re.findall(r"`\[(\w+)\] (\w+)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert {one for one in named if one[1:] not in _options()} == set()


def test_environment_variables_name_options_that_exist():
    upper = {(section.upper(), option.upper()) for section, option in _options()}
    named = {
        (page.name, section, option)
        for page in PAGES
        for section, option in re.findall(
            r"\bAIRFLOW__(?:[A-Z]+___)?([A-Z_]+?)__([A-Z_]+)\b", page.read_text(encoding="utf-8")
        )
    }
    assert len(named) >= 4
    assert {one for one in named if one[1:] not in upper} == set()


def test_defaults_in_sentences_are_the_defaults():
    from airflow_kubernetes_callbacks.settings import OPTIONS

    defaults = {option.name: option.default for option in OPTIONS}
    told = [
        (page.name, name, seconds)
        for page in PAGES
        for name, seconds in re.findall(
            r"`(\w+)`(?: \||,? \(?)\s?\(?(\d+) s(?:econds)?\b", page.read_text(encoding="utf-8")
        )
        if name in defaults
    ]
    assert len(told) >= 4
    assert [one for one in told if defaults[one[1]] != one[2]] == []


#: Of what troubleshooting quotes, these are the words of others.
_OF_OTHERS = {"... 403", "... 401", "... ModuleNotFoundError", "OOMKilled", "Connection refused"}


def test_messages_by_which_one_looks_for_help_are_those_of_the_program():
    sources = (ROOT / "src").rglob("*.py")
    # What stands in the code in pieces, and with names in braces, is one text with gaps.
    program = "".join(path.read_text(encoding="utf-8") for path in sources)
    program = re.sub(r"\{[^{}]*\}|%[sd]", "...", re.sub(r'"\s*\n\s*f?"', "", program))
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    looked_up = re.findall(r"^(?:#+ .*$|- \*\*.*?\*\*:)", page, re.MULTILINE)
    quoted = {text for line in looked_up for text in re.findall(r'"([^"]+)"', line)} - _OF_OTHERS
    assert len(quoted) > 10
    program += stock_refusal()
    for text in quoted:
        for part in text.split("..."):
            assert part.strip() in program, text


def stock_refusal():
    """Return the words with which the stock executor ends the scheduler."""
    from airflow.executors.workloads import ExecuteCallback
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

    workload = ExecuteCallback.model_construct(callback=SimpleNamespace(id="x"))
    with pytest.raises(NotImplementedError) as refusal:
        KubernetesExecutor().queue_workload(workload, session=None)
    return str(refusal.value)


LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def _links():
    found = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        found.extend(pytest.param(page, target, id=f"{page.name}-{target}") for target in LINK.findall(text))
    return found


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in PAGES])
def test_page_reads_well_where_the_repository_is_shown(page):
    """What only the site understands: links that take the page's title, definition lists, includes."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"\[\]\(.*?\)|^: .*|^```\{include\}.*", text, re.MULTILINE) == []
    linked = {(page.parent / unquote(target.partition("#")[0])).resolve() for target in LINK.findall(text)}
    for toctree in re.findall(r"^```\{toctree\}\n(?::\w+:.*\n)*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert page.name == "index.md"
        if page.parent.name != "docs":
            assert {page.parent / f"{name}.md" for name in toctree.split()} <= linked


def test_reference_of_options_is_the_one_of_the_package():
    made = subprocess.run(
        [sys.executable, "dev/options_page.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page = (ROOT / "docs/reference/options.md").read_text(encoding="utf-8")
    assert page == made.stdout, "docs/reference/options.md is not current: run 'make options'"


@pytest.mark.parametrize(("page", "target"), _links())
def test_link_leads_somewhere(page, target):
    if target.startswith(("https://", "http://")):
        return
    path, _, anchor = unquote(target).partition("#")
    file = (page.parent / path).resolve() if path else page
    assert file.exists(), f"{page.name}: {target}"
    if anchor:
        headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in [_anchor(heading) for heading in headings], f"{page.name}: {target}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_dag_of_the_tutorial_says_what_the_tutorial_shows(tmp_path, caplog):
    import structlog
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk.execution_time.callback_supervisor import execute_callback

    from airflow_kubernetes_callbacks.cli.log_lines import readable

    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    code, *_ = [match[3] for match in FENCE.finditer(page) if match[2] == "python"]
    (tmp_path / "late_report.py").write_text(code)
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="tutorial")
    assert bag.import_errors == {}
    (alert,) = bag.dags["late_report"].deadline
    context = {"dag_run": {"dag_id": "late_report", "dag_run_id": "manual__2026-06-01"}}
    done = execute_callback(
        callback_path=alert.callback.path,
        callback_kwargs={**alert.callback.kwargs, "context": context},
        dag_rel_path=Path("late_report.py"),
        bundle_path=tmp_path,
        log=structlog.get_logger(),
    )
    assert done == (True, None)
    (said,) = [record for record in caplog.records if "is late" in record.message]
    line = {
        "timestamp": "2026-06-01T10:00:12.481000Z",
        "level": said.levelname.lower(),
        "event": said.message,
        "logger": said.name,
    }
    assert f"```text\n{readable(json.dumps(line))}\n```" in page


def test_every_page_is_reachable():
    """Sphinx warns of a page that is in no table of contents; a picture that nothing shows is found here."""
    shown = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (ROOT / "docs/_static").glob("*.svg"):
        assert picture.name in shown


@pytest.mark.once
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        ["make", "docs", f"ARGS=-d {tmp_path}/doctrees"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = ROOT / "docs/_build/html"
    assert "max_active_callbacks" in (built / "reference/options.html").read_text(encoding="utf-8")
    assert "run as pods" in (built / "changelog.html").read_text(encoding="utf-8")


def test_json_in_the_docs_is_json():
    """JSON stands only inside ini blocks, where ``test_ini_block...`` parses it; keep it that way."""
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match[2] == "json":
                json.loads(match[3])


def test_map_of_modules_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = re.search(r"^\| a change to .*?\n\n", text, re.MULTILINE | re.DOTALL)
    assert table
    _, *rows = (line.split("|")[2:4] for line in table[0].strip().splitlines() if "|---" not in line)
    package = ROOT / "src" / "airflow_kubernetes_callbacks"
    for modules, tests in rows:
        for name in re.findall(r"`([\w/]+)`", modules):
            assert (package / name).is_dir() or (package / f"{name}.py").is_file(), name
        for name in re.findall(r"`([\w/*.]+)`", tests):
            assert any(any(base.glob(name)) for base in (ROOT, ROOT / "tests")), name
