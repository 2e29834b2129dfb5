"""The pages of the documentation that messages name.

Neither the packages nor the images contain the documentation, and each installation may serve it elsewhere (`make
docs`). So a message names a page by its title and section, which a reader finds in the menu of any copy.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    title: str
    path: str
    """in `docs`"""
    section: str = ""

    def __str__(self) -> str:
        section = f'"{self.section}" on ' if self.section else ""
        return f'{section}the page "{self.title}" of Poolhouse\'s documentation'


EMERGENCY = Page("Emergency", "emergency.md")
ERRORS = Page("Emergency", "emergency.md", "Error messages")
NO_ADMISSION = Page("Emergency", "emergency.md", "Switch admission off")
NO_LEADER = Page("PoolhouseNoLeader", "alerts/PoolhouseNoLeader.md")
NO_DEFAULTER = Page("PoolhouseDefaulterAway", "alerts/PoolhouseDefaulterAway.md")
CERTIFICATES = Page("PoolhouseCertificateExpires", "alerts/PoolhouseCertificateExpires.md")
INSTALL = Page("Install on a cluster", "install.md")
BACKUP = Page("Back up and restore", "tasks/backup.md")
IMPORT_RIGHTS = Page("Import a pool of KubeVirt", "tasks/import.md", "Rights")
AUTOSCALERS = Page("Scale a pool", "tasks/scale.md", "Use an autoscaler")
