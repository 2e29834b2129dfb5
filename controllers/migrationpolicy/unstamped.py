"""The VMs that may not be labelled as a policy's own, and why: KubeVirt cannot know that they obey it."""

from __future__ import annotations

from runtime.resource import Key


class Unstamped:
    def __init__(self) -> None:
        self._policies: dict[Key, str] = {}
        self._of: dict[str, dict[Key, str]] = {}

    def refused(self, key: Key, policy: str | None, message: str) -> tuple[str, ...]:
        """That this VM could not be labelled; None where a label could not be taken off. Returns the policies of which
        something else is to be said now."""
        if policy is None:
            return self.over(key)
        if self._of.get(policy, {}).get(key) == message:
            return ()
        left = self.over(key)
        self._policies[key] = policy
        self._of.setdefault(policy, {})[key] = message
        return tuple({*left, policy})

    def over(self, key: Key) -> tuple[str, ...]:
        """That nothing is refused of this VM any more. Returns the same."""
        policy = self._policies.pop(key, None)
        if policy is None:
            return ()
        del self._of[policy][key]
        if not self._of[policy]:
            del self._of[policy]
        return (policy,)

    def of(self, policy: str) -> tuple[int, str]:
        """How many there are, and why: always the first one's reason, which is not another one each time."""
        found = self._of.get(policy)
        return (len(found), found[min(found)]) if found else (0, "")

    def clear(self) -> None:
        self._policies.clear()
        self._of.clear()
