"""What other packages may use: the defaulter's requests and responses, its client, and checks without libvirt.

Importing this module loads neither libvirt nor lxml; `Defaulter` loads aiohttp when it is used.
"""

from defaulter.adoption import adopt
from defaulter.allowed_changes import defaulted_fields, forbidden_changes
from defaulter.client import Defaulter, DefaulterClient
from defaulter.errors import InvalidDocument
from defaulter.field_record import DEFAULTED_FIELDS
from defaulter.hook import HARDWARE_ANNOTATION, InvalidHardwareRecord, restore_hardware
from defaulter.identity import with_firmware_ids
from defaulter.instancetypes import MatchedSpecs, expand
from defaulter.known_shapes import KnownShapes, ShapeResult
from defaulter.kubevirt_defaults import MACPolicy
from defaulter.limits import excessive_sizes
from defaulter.machine_types import is_canonical, resolve_alias
from defaulter.messages import (
    API_VERSION,
    DEFAULTS_PATH,
    TENANT_HEADER,
    DefaulterOverloaded,
    DefaulterUnavailable,
    DefaultingRequest,
    DefaultingResponse,
    ForbiddenChange,
    Problems,
    UndecidedDocument,
    Version,
)
from defaulter.nodes import SCHEDULABLE_LABEL, CPUs, MachineTypes, Node, NodeIndex, read_node
from defaulter.running_guest import (
    GUEST_ADDRESSES,
    MAX_DOMAIN_BYTES,
    InvalidDomain,
    Reading,
    forget_addresses,
    needed_reading,
    note_addresses,
    read_domain,
)
from defaulter.stored_values import with_machine_type
from defaulter.superseded import preserve_stored_values
from defaulter.undefaulted import open_addresses, undefaulted_fields
from defaulter.version_skew import COMPONENTS, Newer, newer_than_nodes
from defaulter.vm_paths import HOOK, SIDECARS, opted_out
from poolhouse.api.apimachinery.problem import Problem

__all__ = [
    "API_VERSION",
    "COMPONENTS",
    "DEFAULTED_FIELDS",
    "DEFAULTS_PATH",
    "GUEST_ADDRESSES",
    "HARDWARE_ANNOTATION",
    "HOOK",
    "MAX_DOMAIN_BYTES",
    "SCHEDULABLE_LABEL",
    "SIDECARS",
    "TENANT_HEADER",
    "CPUs",
    "Defaulter",
    "DefaulterClient",
    "DefaulterOverloaded",
    "DefaulterUnavailable",
    "DefaultingRequest",
    "DefaultingResponse",
    "ForbiddenChange",
    "InvalidDocument",
    "InvalidDomain",
    "InvalidHardwareRecord",
    "KnownShapes",
    "MACPolicy",
    "MachineTypes",
    "MatchedSpecs",
    "Newer",
    "Node",
    "NodeIndex",
    "Problem",
    "Problems",
    "Reading",
    "ShapeResult",
    "UndecidedDocument",
    "Version",
    "adopt",
    "defaulted_fields",
    "excessive_sizes",
    "expand",
    "forbidden_changes",
    "forget_addresses",
    "is_canonical",
    "needed_reading",
    "newer_than_nodes",
    "note_addresses",
    "open_addresses",
    "opted_out",
    "preserve_stored_values",
    "read_domain",
    "read_node",
    "resolve_alias",
    "restore_hardware",
    "undefaulted_fields",
    "with_firmware_ids",
    "with_machine_type",
]
