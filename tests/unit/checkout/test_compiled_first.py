"""One process of a run imports the tests first; the others wait until it is done, or gone."""

from __future__ import annotations

import threading

from tests.compiled_first import CompiledFirst, wait_for_compiled


def test_others_wait_until_it_is_done() -> None:
    first = CompiledFirst()
    waiting = threading.Thread(target=wait_for_compiled, args=(first.path,))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    first.done()
    waiting.join(timeout=60)
    assert not waiting.is_alive()


def test_who_comes_later_does_not_wait() -> None:
    first = CompiledFirst()
    first.done()
    first.done()
    waiting = threading.Thread(target=wait_for_compiled, args=(first.path,))
    waiting.start()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
