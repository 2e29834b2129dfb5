"""Resolves the DataSources that a template tracks, as far as the authors of the references may still get the images."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from controllers.shared.data_sources import (
    DATA_SOURCES,
    DataSource,
    Sources,
    changed_sources,
    parse_data_source,
    resolve_sources,
)
from controllers.shared.reference_rights import Question, ReferenceRights, last_refusals, questions
from poolhouse.api.kinds.metav1 import Condition
from poolhouse.api.kinds.reference_authors import Author
from poolhouse.runtime.api import Api
from poolhouse.runtime.errors import Forbidden, NotFound
from poolhouse.runtime.resource import Key


@dataclass(frozen=True)
class Tracked:
    """What a template tracks."""

    keys: Mapping[str, Key]
    """The DataSources, by name in dataVolumeTemplates."""
    last: Sources
    """The images that VMs got until now."""
    authors: Mapping[str, Author]


@dataclass(frozen=True)
class ImageSources:
    find: Callable[[Key], DataSource | None] = lambda key: None
    """Returns the DataSource with this namespace and name."""
    rights: ReferenceRights | None = None
    """The rights of the authors of references. None for a user, who may not ask about others."""

    @classmethod
    async def read(cls, api: Api, keys: Iterable[Key]) -> Self:
        """The DataSources with these names that the caller may read."""
        found = dict[Key, DataSource]()
        for key in sorted(keys):
            with suppress(NotFound, Forbidden):
                found[key] = parse_data_source(await api.get(DATA_SOURCES, *key))
        return cls(found.get)

    def _questions(self, tracked: Tracked) -> dict[str, Question]:
        """What to ask before VMs get new images, by name in dataVolumeTemplates."""
        if not tracked.authors:
            return {}
        return questions(tracked.authors, DATA_SOURCES, changed_sources(tracked.keys, self.find, tracked.last))

    async def ask(self, tracked: Tracked) -> None:
        if self.rights is not None:
            await self.rights.ask(self._questions(tracked).values())

    def refusals(self, tracked: Tracked, conditions: Iterable[Condition]) -> dict[str, str]:
        """Why VMs do not get new images. Without rights to ask about, as the conditions say."""
        asked = self._questions(tracked)
        return last_refusals(conditions, asked) if self.rights is None else self.rights.refusals(asked, tracked.last)

    def images(self, tracked: Tracked, conditions: Iterable[Condition]) -> Sources:
        """The images that VMs get now."""
        return resolve_sources(tracked.keys, self.find, tracked.last, self.refusals(tracked, conditions))
