"""The framework: patterns, checks with reasons, the runner's verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mgeserial import params as P
from mgeserial.author import GraphBuilder
from mgeserial.errors import PassError
from mgeserial.ir.graph import Graph
from mgeserial.passes.base import Fact, Log, run_passes
from mgeserial.passes.evaluate import OutputCheck
from mgeserial.passes.rebuild import Rebuild
from mgeserial.passes.rules import Match, Rule, RulePass, Scope, anything, const, op

RELU = P.Elemwise(mode=P.ElemwiseMode.RELU)
_x = anything("x")


def _rule(**changes: Any) -> Rule:
    """RELU(a + b) -> FUSE_ADD_RELU(a, b)."""
    record = P.Elemwise(mode=P.ElemwiseMode.FUSE_ADD_RELU)
    given: dict[str, Any] = {
        "name": "add-relu",
        "pattern": op("Elemwise", mode="RELU")(
            op("Elemwise", mode="ADD", name="sum")(anything("a"), anything("b"))
        ),
        "rewrite": lambda m, build: build.apply(
            "Elemwise", [build[m["a"]], build[m["b"]]], (record,)
        )[0],
    }
    return Rule(**{**given, **changes})


def _net(*, also: bool = False) -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", (2, 3)), b.input("y", (2, 3))
    total = b.add(x, y)
    b.output(b.relu(total), "out")
    if also:
        b.output(b.tanh(total), "other")
    return b.graph()


def _run(graph: Graph, *rules: Rule) -> tuple[Graph, Log]:
    log = Log("test")
    return RulePass(name="test", rules=rules).run(graph, log), log


def test_a_rule_rewrites_and_says_where():
    new, log = _run(_net(), _rule())
    assert [n.op.name for n in new.nodes] == ["Host2DeviceCopy", "Host2DeviceCopy", "Elemwise"]
    assert str(new.outputs[0].node.param.mode) == "FUSE_ADD_RELU"
    assert new.output_names == ("out",)
    (rewrite,) = log.rewrites
    assert (rewrite.rule, rewrite.place.name) == ("add-relu", "out")


def test_the_input_of_a_pass_stays_as_it_was():
    graph = _net()
    before = [n.op.name for n in graph.nodes], graph.revision
    _run(graph, _rule())
    assert ([n.op.name for n in graph.nodes], graph.revision) == before


def test_a_value_with_another_user_is_a_near_miss():
    new, log = _run(_net(also=True), _rule())
    assert not log.rewrites
    assert [m.reason for m in log.near_misses] == ["'Elemwise[2]' has 1 other use"]
    assert len(new.nodes) == 5


def test_a_value_that_is_an_output_is_a_near_miss():
    b = GraphBuilder()
    total = b.add(b.input("x", (2,)), b.input("y", (2,)))
    b.output(total, "sum")
    b.output(b.relu(total), "out")
    _, log = _run(b.graph(), _rule())
    assert [m.reason for m in log.near_misses] == ["'sum' is an output of the network"]


def test_a_failed_check_gives_its_reason():
    _, log = _run(_net(), _rule(check=lambda m: f"shape {m.shape('a')} is not to my liking"))
    assert [m.reason for m in log.near_misses] == ["shape (2, 3) is not to my liking"]


def test_commuting_inputs_and_constants_are_tried_in_both_orders():
    b = GraphBuilder()
    b.output(b.relu(b.add(2.0, b.input("x", (2,)))), "out")
    pattern = op("Elemwise", mode="RELU")(op("Elemwise", mode="ADD", commutes=True)(_x, const("c")))
    seen: list[Any] = []

    def rewrite(m: Match, build: Rebuild) -> Any:
        seen.append(m.constant("c"))
        return build[m["x"]]

    rule = Rule(name="r", pattern=pattern, rewrite=rewrite)
    new, log = _run(b.graph(), rule)
    assert float(seen[0][0]) == 2.0
    # The output would be an input: it keeps its operator, with the reason.
    assert len(new.nodes) == 4
    assert "its value an input" in next(iter(log.near_misses)).reason


def test_one_name_stands_for_one_value():
    b = GraphBuilder()
    x, y = b.input("x", (2,)), b.input("y", (2,))
    b.output(b.relu(b.mul(x, x)), "same")
    b.output(b.relu(b.mul(x, y)), "different")
    pattern = op("Elemwise", mode="RELU")(op("Elemwise", mode="MUL")(_x, _x))
    rule = Rule(name="square", pattern=pattern, rewrite=lambda m, build: build[m["x"]])
    graph = b.graph()
    found = [rule.find(v.node, Scope(graph))[0] for v in graph.outputs]
    assert [m is not None for m in found] == [True, False]


def test_outputs_keep_their_names_when_operators_go():
    b = GraphBuilder()
    x = b.input("x", (2,))
    b.output(b.identity(b.relu(x), name="inner"), "out")
    rule = Rule(name="id", pattern=op("Identity")(_x), rewrite=lambda m, build: build[m["x"]])
    new, log = _run(b.graph(), rule)
    assert len(log.rewrites) == 1
    assert new.output_names == ("out",)
    assert new.outputs[0].name == "out"


def test_two_outputs_do_not_become_one():
    b = GraphBuilder()
    y = b.relu(b.input("x", (2,)))
    b.output(y, "a")
    b.output(b.identity(y), "b")
    rule = Rule(name="id", pattern=op("Identity")(_x), rewrite=lambda m, build: build[m["x"]])
    new, log = _run(b.graph(), rule)
    assert [m.reason for m in log.near_misses] == ["two outputs would be one: 'b' and 'a'"]
    assert new.output_names == ("a", "b")


# -- the runner -----------------------------------------------------------------------------------


@dataclass
class Broken:
    """A pass that does what no pass may."""

    how: str
    name: str = "broken"
    needs: frozenset[Fact] = frozenset()
    ensures: frozenset[Fact] = frozenset()
    spoils: frozenset[Fact] = frozenset()

    def run(self, graph: Graph, log: Log) -> Graph:
        """Break something."""
        build = Rebuild(graph)
        for node in graph.nodes:
            build.carry(node)
        new = build.finish()
        if self.how == "value":
            for node in new.nodes:
                if node.op.name == "Elemwise" and str(node.param.mode) == "RELU":
                    new.set_params(node, (P.Elemwise(mode=P.ElemwiseMode.ABS),))
        elif self.how == "outputs":
            new.set_outputs([])
        elif self.how == "type":
            old = new.output_list[0]
            b = GraphBuilder.within(new, after=old.value.node)
            new.set_outputs([type(old)(b.cast(old.value, "float16"), old.name, 0)])
        elif self.how == "order":
            new._nodes.reverse()
        elif self.how == "links":
            new.nodes[0].outputs[0]._users.clear()
        return new


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("outputs", "pass broken: changed outputs: out became "),
        ("type", "pass broken: output 'out' was Float32 (2, 3) and is Float16 (2, 3)"),
        ("order", "uses a value that does not stand before it"),
        ("links", "has 1 uses, but 0 are noted"),
    ],
)
def test_the_runner_refuses_broken_graphs(how, message):
    with pytest.raises(PassError) as raised:
        run_passes(_net(), [RulePass(name="first", rules=()), Broken(how)])
    assert message in str(raised.value)
    assert "passes already run: first" in str(raised.value)


def test_changed_values_are_found_on_demand():
    feeds = {n: np.array([[-1, 2, 3], [0, 1, -2]], np.float32) for n in ("x", "y")}
    run_passes(_net(), [Broken("value")])
    with pytest.raises(PassError, match="output 'out' differs in 2 elements by up to 4"):
        run_passes(_net(), [Broken("value")], check=OutputCheck(feeds))


def test_a_pass_without_what_it_needs_is_refused():
    picky = RulePass(name="picky", rules=(), needs=frozenset({Fact.NCHW4}))
    with pytest.raises(PassError, match="pass picky: needs that quantised convolutions work"):
        run_passes(_net(), [picky])
    giver = RulePass(name="giver", rules=(), ensures=frozenset({Fact.NCHW4}))
    run_passes(_net(), [giver, picky])
    spoiler = RulePass(name="spoiler", rules=(), spoils=frozenset({Fact.NCHW4}))
    with pytest.raises(PassError, match="already run: giver, spoiler"):
        run_passes(_net(), [giver, spoiler, picky])


def test_rules_without_end_are_an_error():
    b = GraphBuilder()
    b.output(b.relu(b.input("x", (2,))), "out")
    rule = Rule(
        name="again",
        pattern=op("Elemwise", mode="RELU")(_x),
        rewrite=lambda m, build: build.apply("Elemwise", [build[m["x"]]], (RELU,))[0],
    )
    with pytest.raises(PassError, match="no end after 64 rounds"):
        _run(b.graph(), rule)
