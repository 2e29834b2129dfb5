"""The Python client of Poolhouse. Begin with `poolhouse.client`; `poolhouse.models` has the kinds."""
