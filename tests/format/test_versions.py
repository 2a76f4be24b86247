from __future__ import annotations

import pytest

from mgeserial.format.versions import PLACEHOLDER, RELEASES, layout_release, origin


def writers(container, version, has_metadata=True):
    return origin(container, version, has_metadata=has_metadata).writers


@pytest.mark.parametrize(
    ("version", "releases"),
    [
        (800300, ("v0.3.1",)),
        (800301, ("v0.3.2", "v0.3.4", "v0.4.0")),
        (801000, ("v1.3.0",)),
        (801100, ("v1.4.0-rc1", "v1.4.0")),
        (100700, ("v1.7.0",)),
    ],
)
def test_numbers_name_the_releases_that_wrote_them(version, releases):
    assert writers("MGBS", version, has_metadata=False) == releases


def test_metadata_splits_the_placeholder():
    assert writers("MGBS", PLACEHOLDER, has_metadata=True) == ("v1.5.0", "v1.6.0")
    early = ("v1.0.0-rc1", "v1.0.0", "v1.3.1")
    assert writers("MGBS", PLACEHOLDER, has_metadata=False) == early
    assert "placeholder" in str(origin("MGBS", PLACEHOLDER, has_metadata=True).note)


def test_every_release_is_found_under_its_number():
    for release, version in RELEASES.items():
        late = release in ("v1.5.0", "v1.6.0")
        assert release in writers("MGBS", version, has_metadata=late)


def test_a_future_number_is_said_to_be_newer():
    found = origin("mgv2", 101400, has_metadata=True)
    assert found.writers == ()
    assert "newer than v1.13.4" in str(found.note)
    assert found.readers == "v1.10.0 and later"


def test_a_number_of_no_release_is_said_to_be_one():
    assert origin("MGBC", 77, has_metadata=True).note == "of no public release"


def test_compatible_dumps_of_new_releases_are_recognised():
    found = origin("MGBS", 101303, has_metadata=True)
    assert found.writers == ("v1.13.3",)
    assert "8.14" in str(found.note)


@pytest.mark.parametrize(
    ("version", "has_metadata", "release"),
    [
        (0, False, "v0.3.1"),
        (800300, False, "v0.3.1"),
        (800301, False, "v0.4.0"),
        (800401, False, "v0.5.0"),
        (800600, False, "v0.6.0"),
        (800800, False, "v1.1.0"),
        (800900, False, "v1.2.0"),
        (801000, False, "v1.3.0"),
        (801100, False, "v1.4.0"),
        (801300, True, "v1.6.0-rc1"),
        (PLACEHOLDER, False, "v1.3.1"),
        (PLACEHOLDER, True, None),
        (100700, True, None),
        (101302, True, None),
    ],
)
def test_layouts_of_old_files_are_those_of_their_release(version, has_metadata, release):
    assert layout_release("MGBS", version, has_metadata=has_metadata) == release


def test_only_one_table_changed_after_the_new_containers():
    assert layout_release("mgv2", 101203, has_metadata=True) == "v1.12.3"
    for version in (101000, 101202, 101204, 101304):
        assert layout_release("mgv2", version, has_metadata=True) is None
    assert layout_release("MGBC", 100800, has_metadata=True) is None
