"""Keep job folders of releases in which a keyed step inherited nothing from its input but the trigger."""

from dataclasses import replace
from typing import Any, Final

from strandline.model.panes import Accumulation, Lateness
from strandline.plan.nodes import KeyedNode, Node, Root, Together, Write, fingerprint, with_inputs

_BEFORE: Final = {"accumulation": Accumulation.DISCARDING, "lateness": Lateness()}
"""The defaults of release 0.2 and before."""


def settings_inherited(settings: Any) -> frozenset[str]:
    """Return the names of the settings that differ from the defaults of release 0.2."""
    return frozenset(name for name, before in _BEFORE.items() if getattr(settings, name) != before)


def as_stored(root: Root, stored: str) -> Root:
    """Return the pipeline that a job folder was made with: as it is now, or with the defaults of release 0.2.

    `stored` is the fingerprint in the folder. If neither has it, the pipeline is returned as it is.
    """
    if fingerprint(root) == stored:
        return root
    before = without_inheritance(root)
    return before if fingerprint(before) == stored else root


def without_inheritance(root: Root) -> Root:
    """Return a pipeline with the defaults of release 0.2 in place of inherited settings."""
    if isinstance(root, Together):
        return Together(tuple(_write(each) for each in root.outputs))
    return _write(root)


def _write(write: Write) -> Write:
    return replace(write, of=_node(write.of))


def _node(node: Node) -> Node:
    changed = with_inputs(node, _node)
    if isinstance(changed, KeyedNode) and changed.inherited:
        settings: Any = {name: _BEFORE[name] for name in changed.inherited}
        return replace(changed, operator=replace(changed.operator, **settings), inherited=frozenset())
    return changed
