"""Which pools of KubeVirt cannot be imported, and how the command says why."""

from __future__ import annotations

import pytest

from controllers.pool.import_check import check
from controllers.pool.import_steps import CannotImport, Observed


@pytest.mark.parametrize(
    ("served", "said"),
    [
        pytest.param("v1beta1", "there is no pool web of KubeVirt in namespace ns", id="the pool does not exist"),
        pytest.param("", "the cluster does not have KubeVirt's pools (pool.kubevirt.io)", id="the kind does not exist"),
    ],
)
def test_a_pool_that_does_not_exist(served: str, said: str) -> None:
    with pytest.raises(CannotImport) as error:
        check(Observed("ns", "web", served=served), ())
    assert error.value.problems == (said,)
