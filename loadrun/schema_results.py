"""Keys of the documents of comparisons and sweeps, in the form that `schema` reads."""

from __future__ import annotations

__all__ = ["COMPARE", "SWEEP"]

_CLOSE = """
{0}.element_count | integer | count | elements compared
{0}.equal_bits | bool | | whether all stored bits agree
{0}.max_abs | number? | value | largest abs(a - b); null: not finite
{0}.max_rel | number? | value | largest abs(a - b) / max(abs(a), abs(b)); null: not finite
{0}.max_ulp_count | integer? | count | most representable values between a and b
{0}.cosine | number? | value | of both as vectors
{0}.error | number? | value | largest abs(a - b) / max(floor, min(abs(a), abs(b)))
{0}.error_is_infinite | bool | | whether `error` is null for that
{0}.error_floor | number | value | magnitude below which the error is absolute
{0}.allowed_error | number? | value | error allowed; null: any
{0}.mismatch_count | integer | count | elements above it
{0}.worst_index | list | | place of the largest error
{0}.worst_index[] | integer | identifier |
{0}.worst_a | number? | value | value of A there
{0}.worst_b | number? | value | value of B there
{0}.passed | bool | | whether no element is above the error allowed
{0}.note | text | | what else is wrong, such as shapes that do not fit
"""


def _suspect(path: str) -> str:
    """Keys of an operator whose values differ."""
    close = _CLOSE.format(f"{path}.closeness")
    alone = _CLOSE.format(f"{path}.alone")
    return f"""
{path}.operator_index | integer | index | its place in the file
{path}.type | text | | of the operator
{path}.name | text | |
{path}.value | text | | which of its values
{path}.shape | list | |
{path}.shape[] | integer? | number of | elements along the axis
{path}.dtype | text | |
{path}.how | text | | equal inputs, other operators, alone, handed on, fused, unknown
{path}.changes | list | | in what it and its weights differ between the files
{path}.changes[] | text | |
{path}.inputs | list | | names of what it is computed from
{path}.inputs[] | text | |
{path}.closeness | object | | how far its values are apart{close}
{path}.alone | object? | | how far they are apart when it runs alone on equal inputs{alone}
"""


_PAIR = "comparisons[]"
COMPARE = f"""
schema | integer | identifier | version of the document's form: 1
kind | text | | loadrun.compare
command | list | | arguments of the command
command[] | text | |
sides | list | | A, B, ...
sides[] | object | |
sides[].label | text | |
sides[].model | object | |
sides[].model.path | text | |
sides[].model.file_bytes | integer? | bytes | size
sides[].model.sha256 | text? | |
sides[].backend | text | |
sides[].threads | integer | number of | threads
sides[].operator_count | integer | count | operators of the network, weights included
iter | integer | number of | samples asked for of each side
warmup_iter | text | | warm-up, as asked for
seed | integer | identifier | of random inputs and of the resampling
cases | list | | titles of the sets of inputs
cases[] | text | |
inputs | list | | of the first case
inputs[] | object | |
inputs[].name | text | |
inputs[].dtype | text | |
inputs[].shape | list | |
inputs[].shape[] | integer | number of | elements along the axis
inputs[].from | text? | | where the values come from
comparisons | list | | A against each other side
comparisons[] | object | |
{_PAIR}.a | text | | label of the first side
{_PAIR}.b | text | | label of the second
{_PAIR}.outputs | list | | every output of every case
{_PAIR}.outputs[] | object | |
{_PAIR}.outputs[].case | text | |
{_PAIR}.outputs[].name | text | |
{_PAIR}.outputs[].name_b | text | | its name in B
{_PAIR}.outputs[].dtype | text | |
{_PAIR}.outputs[].dtype_b | text | |
{_PAIR}.outputs[].shape | list | |
{_PAIR}.outputs[].shape[] | integer | number of | elements along the axis
{_CLOSE.format(f"{_PAIR}.outputs[]")}
{_PAIR}.outputs_agree | bool | | whether all of them passed
{_PAIR}.walk | object? | | operators compared in order; null: outputs are equal, or --no-walk
{_PAIR}.walk.compared_count | integer | count | values compared
{_PAIR}.walk.uncomparable_count | integer | count | operators without a counterpart
{_PAIR}.walk.first_with_other_bits | object? | |
{_suspect(f"{_PAIR}.walk.first_with_other_bits")}
{_PAIR}.walk.first_at_fault | object? | | it differs on equal inputs
{_suspect(f"{_PAIR}.walk.first_at_fault")}
{_PAIR}.walk.first_handed_on | object? | | beyond its tolerance, but alone it agrees
{_suspect(f"{_PAIR}.walk.first_handed_on")}
{_PAIR}.walk.operators | list | |
{_PAIR}.walk.operators[] | object | |
{_PAIR}.walk.operators[].operator_index | integer | index | place in the file
{_PAIR}.walk.operators[].type | text | |
{_PAIR}.walk.operators[].name | text | |
{_PAIR}.walk.operators[].error | number? | value | null: infinite
{_PAIR}.walk.operators[].allowed_error | number | value |
{_PAIR}.cut | object? | | where the optimised networks part, when operators alone do not
{_suspect(f"{_PAIR}.cut")}
{_PAIR}.reduced | object? | | --bisect: the smallest part that differs
{_PAIR}.reduced.operator_count | integer | count | operators of it, weights apart
{_PAIR}.reduced.operators | list | |
{_PAIR}.reduced.operators[] | object | |
{_PAIR}.reduced.operators[].operator_index | integer | index |
{_PAIR}.reduced.operators[].type | text | |
{_PAIR}.reduced.operators[].name | text | |
{_PAIR}.reduced.inputs | list | |
{_PAIR}.reduced.inputs[] | text | |
{_PAIR}.reduced.output | text | |
{_PAIR}.reduced.closeness | object | |
{_CLOSE.format(f"{_PAIR}.reduced.closeness")}
{_PAIR}.reduced.trial_count | integer | count | parts that were run
{_PAIR}.reduced.files | list | | models written
{_PAIR}.reduced.files[] | text | |
{_PAIR}.reduced.reproduces | bool? | | whether the saved model fails its test case on B
{_PAIR}.reduced.notes | list | |
{_PAIR}.reduced.notes[] | text | |
{_PAIR}.speed | object? | | null: --iter 0
{_PAIR}.speed.sample_count | integer | count | of each side
{_PAIR}.speed.a_median_ms | number? | ms |
{_PAIR}.speed.b_median_ms | number? | ms |
{_PAIR}.speed.a_p90_ms | number? | ms |
{_PAIR}.speed.b_p90_ms | number? | ms |
{_PAIR}.speed.speed_ratio | number? | ratio | a_median_ms / b_median_ms: above 1 B is faster
{_PAIR}.speed.low_ratio | number? | ratio | lower end of its interval
{_PAIR}.speed.high_ratio | number? | ratio | upper end
{_PAIR}.speed.confidence_percent | number | percent | of the interval
{_PAIR}.speed.a_samples_ns | list | | in order, taken in turns with those of B
{_PAIR}.speed.a_samples_ns[] | integer | ns |
{_PAIR}.speed.b_samples_ns | list | |
{_PAIR}.speed.b_samples_ns[] | integer | ns |
{_PAIR}.values | object | | what a condition of --fail-if may name
{_PAIR}.values.* | number? | value |
{_PAIR}.notes | list | |
{_PAIR}.notes[] | text | |
failed_conditions | list | | conditions of --fail-if that hold
failed_conditions[] | text | |
passed | bool | | outputs agree, and no condition holds
verdict | text | | the same as a sentence
"""

SWEEP = """
schema | integer | identifier | version of the document's form: 1
kind | text | | loadrun.sweep
command | list | | arguments of the command
command[] | text | |
model | object | |
model.path | text | |
model.file_bytes | integer? | bytes | size
model.sha256 | text? | |
iter | integer | number of | samples asked for of each combination
warmup_iter | text | | warm-up, as asked for
seed | integer | identifier | of random inputs
best_at | text | | latency or throughput
combination_count | integer | count | combinations asked for
complete | bool | | whether all of them are there
best_index | integer? | index | the best of `combinations`
combinations | list | |
combinations[] | object | |
combinations[].label | text | | what tells it from the others
combinations[].shapes | text | | --shape; empty: as in the file
combinations[].batch | integer? | number of | samples in a batch
combinations[].threads | integer? | number of | threads
combinations[].backend | text | |
combinations[].switches | text | | --switches; empty: the backend's choice
combinations[].state | text | | measured, or why not
combinations[].prepare_ms | number? | ms | compiling
combinations[].arena_bytes | integer? | bytes | memory for activations
combinations[].weight_bytes | integer? | bytes | memory for weights
combinations[].sample_count | integer? | count | samples
combinations[].median_ms | number? | ms |
combinations[].median_low_ms | number? | ms | lower end of the median's confidence interval
combinations[].median_high_ms | number? | ms | upper end
combinations[].p90_ms | number? | ms |
combinations[].min_ms | number? | ms |
combinations[].max_ms | number? | ms |
combinations[].first_inference_ms | number? | ms | in no statistic
combinations[].samples_per_s | number? | 1/s | inferences a second times the batch
combinations[].trust | text? | | good, fair or poor
combinations[].samples_ns | list | | samples in order
combinations[].samples_ns[] | integer | ns |
"""
