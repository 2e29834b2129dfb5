"""What tests/cluster/test_server_side_apply.py compares with: the same requests without Poolhouse."""

from tests.cluster.pooling import Place
from tests.cluster.test_server_side_apply import generations_after_patches


async def test_a_merge_patch_of_the_whole_manifest_changes_nothing_without_poolhouse(guests: Place) -> None:
    """The engine has no Poolhouse beside it, and stores the manifest with KubeVirt's own defaults."""
    assert len(set(await generations_after_patches(guests.api, guests.namespace))) == 1
