"""Computing nodes of MegEngine and numbers of devices, in Python and on the command line."""

from __future__ import annotations

import dataclasses

import pytest

from loadrun.backends.base import CompileOptions
from loadrun.locator import Locator, at_node, parse_locator
from mgeserial.errors import InputError, UnsupportedError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", Locator("cuda")),
        ("3", Locator("cuda", 3)),
        ("xpu", Locator("auto")),
        ("xpux", Locator("auto")),
        ("xpux:0", Locator("auto")),
        ("xpu1:2", Locator("auto", 1)),
        ("gpu", Locator("cuda")),
        ("gpux", Locator("cuda")),
        ("gpu0:1", Locator("cuda")),
        ("gpu7", Locator("cuda", 7)),
        ("cuda1", Locator("cuda", 1)),
        ("cpu", Locator("cpu")),
        ("cpux:0", Locator("cpu")),
        ("cpu3:1", Locator("cpu")),
        ("cpu:default", Locator("cpu", threads=1)),
        ("multithread4:0", Locator("cpu", threads=4)),
        ("multithread:default:2", Locator("cpu", threads=2)),
    ],
)
def test_nodes_mean_a_backend_a_device_and_threads(text: str, want: Locator) -> None:
    assert parse_locator(text) == want


@pytest.mark.parametrize(
    "text",
    ["", "gpu-1", "gpu 0", "gpu0:1:2", "cpu:", "multithread4", "multithread:4", "x" * 9999, "٣"],
)
def test_other_texts_are_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(InputError, match="is no computing node") as caught:
        parse_locator(text)
    assert "gpu0:1" in str(caught.value.hint)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["rocm0:0", "cambricon", "atlas0"])
def test_other_machines_are_not_supported(text: str) -> None:
    with pytest.raises(UnsupportedError, match=f"nothing here computes on {text}"):
        parse_locator(text)


@pytest.mark.parametrize("text", ["multithread0:0", "multithread:default:0", "multithread9999:0"])
def test_pools_have_a_sensible_number_of_threads(text: str) -> None:
    with pytest.raises(InputError, match="number of threads from 1 to 1024"):
        parse_locator(text)


def test_node_adds_to_what_else_was_asked_for() -> None:
    options = CompileOptions(cache=False)
    assert at_node("gpu1", "auto", None, options) == (
        "cuda", None, dataclasses.replace(options, device=1),
    )  # fmt: skip
    assert at_node("xpu1", "cpu", 3, options)[:2] == ("cpu", 3)
    assert at_node("multithread4:0", "auto", None, options)[:2] == ("cpu", 4)
    assert at_node(1, "cuda", None, options)[2].device == 1
    with pytest.raises(InputError, match="device gpu0 and backend cpu exclude each other"):
        at_node("gpu0", "cpu", None, options)
    with pytest.raises(InputError, match="multithread4:0 and 2 threads exclude"):
        at_node("multithread4:0", "auto", 2, options)
