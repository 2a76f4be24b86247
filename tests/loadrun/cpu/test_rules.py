"""Which module of rules is imported for which operator."""

from __future__ import annotations

import subprocess
import sys

from loadrun.backends.cpu import lower, rules


def test_the_table_says_what_the_modules_have_rules_for() -> None:
    found: dict[str, set[str]] = {}
    for operator, every in lower.rules().items():
        for rule in every:
            found.setdefault(rule.apply.__module__.rpartition(".")[2], set()).add(operator)
    assert {m: set(names) for m, names in rules._LATER.items()} == {
        m: names for m, names in found.items() if m not in rules._FIRST
    }


def test_an_operator_is_in_one_of_the_later_modules() -> None:
    every = [name for names in rules._LATER.values() for name in names]
    assert len(every) == len(set(every))


def test_a_rare_operator_imports_its_own_module_alone() -> None:
    code = (
        "import sys\n"
        "from loadrun.backends.cpu import lower\n"
        "assert lower.rules(operator='CvtColor')['CvtColor']\n"
        "print('loadrun.backends.cpu.rules.roi' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
