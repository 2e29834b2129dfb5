from __future__ import annotations

import pytest

from poolhouse.api.kubevirt.versions import (
    DECLARATIVE_HOTPLUG_VOLUMES,
    FEATURES,
    RELEASES,
    VIDEO_CONFIG,
    FeatureGate,
    Release,
    is_enabled,
    parse_release,
)


@pytest.mark.parametrize(
    ("version", "release"),
    [
        pytest.param("v1.8.4", (1, 8), id="a release"),
        pytest.param("1.5.0", (1, 5), id="without v"),
        pytest.param("v1.9", (1, 9), id="without a patch"),
        pytest.param("v1.9.0-rc.2", (1, 9), id="a candidate has what the release has"),
        pytest.param("v1.9.0-beta.0-1264-gd923fdb815", (1, 9), id="a build of main"),
        pytest.param("v1.10.0-alpha.0", (1, 9), id="an alpha has little of its release"),
        pytest.param("v1.8.2-dirty", (1, 8), id="a build with changes"),
        pytest.param("devel", None, id="a name"),
        pytest.param("sha256:1.8", None, id="a digest"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_release_of_a_version(version: str, release: Release | None) -> None:
    assert parse_release(version) == release


BETA_IN_1_9 = FeatureGate("New", alpha=(1, 6), beta=(1, 9))


@pytest.mark.parametrize(
    ("gate", "release", "enabled", "disabled", "expected"),
    [
        pytest.param(VIDEO_CONFIG, (1, 9), (), (VIDEO_CONFIG.name,), True, id="nobody disables what is GA"),
        pytest.param(VIDEO_CONFIG, (1, 8), (), (), False, id="before 1.9 a beta gate is off"),
        pytest.param(VIDEO_CONFIG, (1, 8), (VIDEO_CONFIG.name,), (), True, id="a gate that is listed"),
        pytest.param(VIDEO_CONFIG, (1, 8), (VIDEO_CONFIG.name,), (VIDEO_CONFIG.name,), True, id="enabling wins"),
        pytest.param(VIDEO_CONFIG, (1, 5), (VIDEO_CONFIG.name,), (), False, id="1.5 does not know the gate"),
        pytest.param(BETA_IN_1_9, (1, 9), (), (), True, id="since 1.9 a beta gate is on"),
        pytest.param(BETA_IN_1_9, (1, 9), (), ("New",), False, id="a beta gate can be disabled"),
        pytest.param(VIDEO_CONFIG, None, (), (), False, id="an unknown release may refuse the field"),
        pytest.param(VIDEO_CONFIG, None, (VIDEO_CONFIG.name,), (), True, id="an unknown release with the gate"),
    ],
)
def test_whether_a_gate_is_enabled(
    gate: FeatureGate, release: Release | None, enabled: tuple[str, ...], disabled: tuple[str, ...], expected: bool
) -> None:
    assert is_enabled(gate, release, enabled, disabled) is expected


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (VIDEO_CONFIG, ["no", "gate", "gate", "gate", "always"]),
        (DECLARATIVE_HOTPLUG_VOLUMES, ["no", "gate", "gate", "gate", "default"]),
    ],
)
def test_the_support_of_each_release(gate: FeatureGate, expected: list[str]) -> None:
    (feature,) = (each for each in FEATURES if each.gate is gate)
    assert [feature.support(release) for release in RELEASES] == expected


def test_a_feature_and_its_gate_agree() -> None:
    for feature in FEATURES:
        if feature.gate is not None:
            assert feature.gate.alpha == feature.since, feature.name
        assert all(feature.support(release) != "no" for release in feature.seen), feature.name
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
