"""What the JSON documents hold: every key with its type, unit and meaning; a check of documents.

A key with a measured number ends in the number's unit (`_ns`, `_ms`, `_bytes`, `_per_s`,
`_percent`, `_ratio`, `_count`, `_index`, `_cores`). The others name what they count (`threads`),
identify something (`seed`), or are values of tensors, which have no unit. docs/json.md is generated
from these tables.

Within one schema number keys are only ever added, so a reader may rely on those it knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadrun.schema_results import COMPARE, SWEEP

__all__ = ["DOCUMENTS", "SUFFIXES", "UNKNOWN", "Field", "validate"]

# How the problem of a key ends that the schema does not have.
UNKNOWN = "is not in the schema"

# Units that a key shows at its end.
SUFFIXES = {
    "ns": "_ns",
    "ms": "_ms",
    "bytes": "_bytes",
    "1/s": "_per_s",
    "percent": "_percent",
    "ratio": "_ratio",
    "count": "_count",
    "index": "_index",
    "cores": "_cores",
}
# Units of keys that say by their name what the number is.
PLAIN = frozenset({"number of", "identifier", "value"})


@dataclass(frozen=True, slots=True)
class Field:
    """One key.

    Attributes:
        path: Where it is: `cases[].stats.mean_ms`; `*` stands for any key.
        type: text, bool, integer, number, object, list or document (one of the others).
        text: What it means.
        unit: Unit of a number; empty for others.
        null: Whether it may be null.
    """

    path: str
    type: str
    text: str
    unit: str = ""
    null: bool = False


def _fields(table: str) -> tuple[Field, ...]:
    """Read rows `path | type | unit | meaning`; a `?` after the type: may be null."""
    found = []
    for line in filter(None, table.splitlines()):
        path, kind, unit, text = (part.strip() for part in line.split("|"))
        found.append(Field(path, kind.rstrip("?"), text, unit, kind.endswith("?")))
    return tuple(found)


_ENVIRONMENT = """
{0} | object | | where it was measured
{0}.mgeserial | text | | version of this package
{0}.python | text | | version
{0}.numpy | text | | version
{0}.llvmlite | text? | | version; null where it is not installed
{0}.system | text | | operating system
{0}.machine | text | | kind of processor
{0}.cpu | text? | | its name
{0}.cores | integer? | number of | cores of the machine
{0}.usable_cores | integer | cores | cores that the process may use
{0}.cpu_quota_cores | number? | cores | time of so many cores that the control group grants
{0}.memory_limit_bytes | integer? | bytes | memory that the control group grants
{0}.frequency_governor | text? | | how the clock frequency is chosen
{0}.load_average_1min | number? | value | processes that want to run, mean of a minute
"""

_RUN = """
schema | integer | identifier | version of the document's form: 1
kind | text | | loadrun.run
command | list | | arguments of the command, as they were understood
command[] | text | |
model | object | | the file
model.path | text | | as it was given
model.file_bytes | integer? | bytes | size
model.sha256 | text? | | of the file
backend | text | | what computed
threads | integer | number of | threads of a session
sessions | integer | number of | sessions at once (--thread)
batch | integer? | number of | first dimension that all inputs share
iter | integer | number of | samples asked for in each case
duration_ms | number | ms | least time to measure, as asked for
interval_ms | number | ms | pause before each sample, as asked for
warmup_iter | text | | warm-up, as asked for
seed | integer | identifier | seed of random inputs
copies_outputs | bool | | whether samples include a copy of the outputs (--copy-to-host)
load_ms | number | ms | reading the file and making the session
load_ns | integer | ns | the same
total_ms | number | ms | sum of all samples
interrupted | bool | | whether Ctrl-C ended the run
asserts_ok | bool | | whether all outputs are as the network expects
peak_memory_bytes | integer? | bytes | most memory that the process held
weight_bytes | integer? | bytes | memory for weights, as the backend says
arena_bytes | integer? | bytes | memory for activations, as the backend says
workspace_bytes | integer? | bytes | scratch memory of all threads, as the backend says
notes | list | | what people should know
notes[] | text | |
algorithms | list | | layers whose algorithm was chosen (--fast-run, --fast-run-algo-policy)
algorithms[] | object | |
algorithms[].layer | text | | what the policy file knows the layer by
algorithms[].names | list | | the layers of this kind
algorithms[].names[] | text | |
algorithms[].choice | text | | the candidate; `default` is the cost model's
algorithms[].source | text | | measured, policy file, as given or cost model
algorithms[].candidates | list | | what was measured
algorithms[].candidates[] | object | |
algorithms[].candidates[].name | text | |
algorithms[].candidates[].time_ns | integer | ns | time of one layer
checks | object | | results of checks of all values, by option
checks.* | list | |
checks.*[] | text | |
cases | list | | one for each set of inputs (and session)
cases[] | object | |
cases[].source | text | | testcase, input or none
cases[].index | integer | identifier | number of the case, from 0
cases[].session | integer | identifier | which of several sessions, from 0
cases[].title | text | | what a person calls the case
cases[].inputs | list | | what went in
cases[].inputs[] | object | |
cases[].inputs[].name | text | |
cases[].inputs[].dtype | text | | type of the array
cases[].inputs[].shape | list | |
cases[].inputs[].shape[] | integer | number of | elements along the axis
cases[].inputs[].from | text? | | where the values come from
cases[].outputs | list | | what came out (real values of quantised types)
cases[].outputs[] | object | |
cases[].outputs[].name | text | |
cases[].outputs[].dtype | text | | element type
cases[].outputs[].shape | list | |
cases[].outputs[].shape[] | integer | number of | elements along the axis
cases[].outputs[].min | number? | value | smallest
cases[].outputs[].max | number? | value | largest
cases[].outputs[].mean | number? | value | mean
cases[].outputs[].rms | number? | value | root mean square
cases[].assert_failures | list | | outputs that are not as the network expects
cases[].assert_failures[] | object | |
cases[].assert_failures[].output | text | | its name
cases[].assert_failures[].index | list | | place of the worst element
cases[].assert_failures[].index[] | integer | identifier |
cases[].assert_failures[].expected | number? | value | value expected there
cases[].assert_failures[].got | number? | value | value computed there
cases[].assert_failures[].error | number? | value | abs(e - g) / max(1, min(abs(e), abs(g)))
cases[].assert_failures[].max_error | number? | value | the largest error allowed
cases[].assert_failures[].mismatches | integer | number of | elements above it
cases[].assert_failures[].size | integer | number of | elements compared
cases[].assert_failures[].text | text | | the same as a sentence
cases[].prepare_ms | number? | ms | compiling for the inputs' shapes
cases[].prepare_ns | integer? | ns | the same
cases[].first_inference_ms | number? | ms | the first run after that; in no statistic
cases[].first_inference_ns | integer? | ns | the same
cases[].warmup_ns | list | | warm-up runs in order; in no statistic
cases[].warmup_ns[] | integer | ns |
cases[].warmup_stable | bool? | | whether a warm-up "until stable" became stable
cases[].samples_ns | list | | samples in order
cases[].samples_ns[] | integer | ns |
cases[].host_ns | list | | part of each sample outside kernels and copies; empty: not known
cases[].host_ns[] | integer | ns |
cases[].device_ns | list | | part of each sample in kernels
cases[].device_ns[] | integer | ns |
cases[].copy_ns | list | | part of each sample in copies from and to the device
cases[].copy_ns[] | integer | ns |
cases[].elapsed_ns | integer | ns | from before the first sample to after the last, pauses included
cases[].stats | object? | | numbers drawn from the samples
cases[].stats.count | integer | number of | samples
cases[].stats.total_ms | number | ms | their sum
cases[].stats.min_ms | number? | ms | smallest
cases[].stats.median_ms | number? | ms | 50th percentile
cases[].stats.mean_ms | number? | ms | arithmetic mean
cases[].stats.sd_ms | number? | ms | sample standard deviation (n - 1)
cases[].stats.p90_ms | number? | ms | rank p/100 * (n - 1) from 0, straight line between samples
cases[].stats.p95_ms | number? | ms |
cases[].stats.p99_ms | number? | ms |
cases[].stats.max_ms | number? | ms | largest
cases[].stats.mad_ms | number? | ms | median distance to the median
cases[].stats.percentiles | list | | those of --percentile
cases[].stats.percentiles[] | object | |
cases[].stats.percentiles[].percent | number | percent | which
cases[].stats.percentiles[].time_ms | number? | ms | its value
cases[].stats.median_low_ms | number? | ms | lower end of the median's confidence interval
cases[].stats.median_high_ms | number? | ms | upper end
cases[].stats.confidence_percent | number | percent | its confidence
cases[].stats.mean_host_ms | number? | ms | mean of host_ns
cases[].stats.mean_device_ms | number? | ms | mean of device_ns
cases[].stats.mean_copy_ms | number? | ms | mean of copy_ns; the three add up to mean_ms
cases[].stats.throughput_per_s | number? | 1/s | inferences, from the mean
cases[].stats.samples_per_s | number? | 1/s | the same times the batch
cases[].trust | object? | | whether the numbers can be trusted
cases[].trust.level | text? | | good, fair or poor; null without samples
cases[].trust.findings | list | |
cases[].trust.findings[] | object | |
cases[].trust.findings[].code | text | | few, unstable, drift, tail, cold, ...
cases[].trust.findings[].text | text | | what was found
cases[].trust.findings[].hint | text | | what to do
cases[].trust.findings[].figures | object | | its numbers; keys end in units
cases[].trust.findings[].figures.* | number | by key |
cases[].system | object? | | what the system counted while samples were taken
cases[].system.wall_ms | number | ms | how long
cases[].system.involuntary_switches_count | integer? | count | times a core was taken away
cases[].system.steal_ms | number? | ms | time that the host took away
cases[].system.throttled_ms | number? | ms | time that the control group's limit stopped the process
cases[].system.load_average_1min | number? | value | processes that want to run
together | object? | | what several sessions did together; null for one
together.sessions | integer | number of | sessions
together.samples_count | integer | count | inferences of all of them
together.wall_ns | integer | ns | from the first start to the last end
together.throughput_per_s | number? | 1/s | inferences of all sessions
profile | document? | | loadrun.profile, where one was asked for
memory | document? | | loadrun.memory
""" + _ENVIRONMENT.format("environment")

_PROFILE = """
schema | integer | identifier | version of the document's form: 1
kind | text | | loadrun.profile
model | object~ | | the file (in a file of its own only)
model.path | text | |
model.sha256 | text? | |
source | text | | loadrun; load_and_run where its profile was read
backend | text | | what computed
threads_count | integer | count | threads
runs_count | integer | count | profiled runs
wall_ns | number? | ns | median time of a run that is not profiled
sum_ns | number | ns | sum of the steps' medians
gap_ns | number? | ns | wall_ns - sum_ns; below 0: the clocks' own cost
peak | object? | | what the machine can do, measured
peak.flop_per_s | number | 1/s | float32 operations, a multiply-add being two
peak.bytes_per_s | number | 1/s | bytes read plus bytes written
peak.threads_count | integer | count | threads that took part
peak.how | text | | how the first was measured
steps | list | | in the order they run
steps[] | object | |
steps[].name | text | |
steps[].type | text | | type of the operator that costs most in it
steps[].operators | list | | all operators that it computes
steps[].operators[] | object | |
steps[].operators[].operator_index | integer | index | place in the graph that ran
steps[].operators[].name | text | |
steps[].operators[].type | text | |
steps[].kernel | text | | what computes it
steps[].algorithm | text | | for people
steps[].inputs | list | | types that go in
steps[].inputs[] | text | |
steps[].outputs | list | | types that come out
steps[].outputs[] | text | |
steps[].median_ns | number | ns | median duration
steps[].share_percent | number | percent | of sum_ns
steps[].flops_count | integer? | count | arithmetic operations, a multiply-add being two
steps[].read_bytes | integer? | bytes | what it must read
steps[].written_bytes | integer? | bytes | what it must write
steps[].flop_per_s | number? | 1/s | flops_count over median_ns
steps[].bytes_per_s | number? | 1/s | bytes over median_ns
steps[].flop_peak_percent | number? | percent | of peak.flop_per_s
steps[].bytes_peak_percent | number? | percent | of peak.bytes_per_s; above 100: from caches
steps[].starts_ns | list | | start in each run
steps[].starts_ns[] | integer | ns |
steps[].times_ns | list | | duration in each run
steps[].times_ns[] | integer | ns |
types | list | | steps joined by type, the longest first
types[] | object | |
types[].type | text | |
types[].steps_count | integer | count |
types[].median_ns | number | ns | sum of the steps' medians
types[].share_percent | number | percent | of sum_ns
types[].flops_count | integer? | count |
""" + _ENVIRONMENT.format("environment").replace("| object |", "| object~ |", 1)

_MEMORY = """
schema | integer | identifier | version of the document's form: 1
kind | text | | loadrun.memory
backend | text | | whose plan it is
arena_bytes | integer | bytes | size of the arena; without one: the most that lives at one time
weight_bytes | integer | bytes | memory for weights
workspace_bytes | integer | bytes | scratch memory of all threads
sum_of_values_bytes | integer | bytes | memory if nothing were shared
most_alive_bytes | integer | bytes | most that lives at one step
steps | list | |
steps[] | object | |
steps[].step_index | integer | index |
steps[].name | text | |
steps[].alive_bytes | integer | bytes | what lives then
values | list | |
values[] | object | |
values[].name | text | |
values[].size_bytes | integer | bytes |
values[].offset_bytes | integer? | bytes | place in the arena; null without one
values[].first_step_index | integer | index | step that makes it
values[].last_step_index | integer | index | step that reads it last
"""

_VALUES = """
schema | integer | identifier | version of the document's form: 1
kind | text | | loadrun.values (index.json of --bin-io-dump)
values | list | |
values[] | object | |
values[].file | text? | | file beside this one; null: the form has no number for the type
values[].name | text | |
values[].operator | text | | type of the operator that made it
values[].operator_index | integer | index | its place in the graph
values[].dtype | text | | element type
values[].scale | number? | value | of a quantised type
values[].zero_point | integer? | value | of a quantised type
values[].shape | list | |
values[].shape[] | integer | number of | elements along the axis
"""

# Fields by kind of document.
DOCUMENTS: dict[str, tuple[Field, ...]] = {
    "loadrun.run": _fields(_RUN),
    "loadrun.profile": _fields(_PROFILE),
    "loadrun.memory": _fields(_MEMORY),
    "loadrun.values": _fields(_VALUES),
    "loadrun.compare": _fields(COMPARE + _ENVIRONMENT.format("environment")),
    "loadrun.sweep": _fields(SWEEP + _ENVIRONMENT.format("environment")),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "bool": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "object~": (dict,),  # may be left out
    "list": (list,),
    "document": (dict,),
}


def validate(document: Any, *, complete: bool = True) -> list[str]:
    """What is wrong with a document; empty: nothing.

    Args:
        document: As read from JSON.
        complete: Whether every key must be there (a document of an earlier version has fewer).
    """
    kind = document.get("kind") if isinstance(document, dict) else None
    fields = DOCUMENTS.get(str(kind))
    if fields is None:
        return [f"the kind {kind!r} is not known"]
    table = {field.path: field for field in fields}
    return list(_problems(document, "", table, complete=complete))


def _problems(
    value: Any, path: str, table: Mapping[str, Field], *, complete: bool
) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            below = f"{path}.{key}" if path else str(key)
            named = below if below in table else f"{path}.*"
            field = table.get(named)
            if field is None:
                yield f"{below} {UNKNOWN}"
                continue
            if field.unit == "by key" and not str(key).endswith(tuple(SUFFIXES.values())):
                yield f"{below} has no unit at its end"
            yield from _field_problems(item, below, named, table, complete=complete)
        if complete:
            yield from _missing(value, path, table)
    elif isinstance(value, list):
        named = f"{path}[]"
        if named not in table:
            yield f"{named} {UNKNOWN}"
            return
        for item in value:
            yield from _field_problems(item, named, named, table, complete=complete)


def _field_problems(
    item: Any, shown: str, named: str, table: Mapping[str, Field], *, complete: bool
) -> Iterator[str]:
    field = table[named]
    if item is None:
        if not field.null:
            yield f"{shown} is null"
        return
    allowed = _TYPES[field.type]
    if not isinstance(item, allowed) or (isinstance(item, bool) and field.type != "bool"):
        yield f"{shown} is {type(item).__name__}, not {field.type.rstrip('~')}"
    elif field.type == "document":
        yield from (f"{shown}: {text}" for text in validate(item, complete=complete))
    else:
        yield from _problems(item, named, table, complete=complete)


def _missing(value: Mapping[str, Any], path: str, table: Mapping[str, Field]) -> Iterator[str]:
    prefix = f"{path}." if path else ""
    for field in table.values():
        rest = field.path[len(prefix) :] if field.path.startswith(prefix) else ""
        if not rest or "." in rest or "[" in rest or rest == "*" or field.type == "object~":
            continue
        if rest not in value:
            yield f"{field.path} is missing"
