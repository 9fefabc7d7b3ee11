"""Facts of a stack in words: every one has some, and they follow the values."""

import msgspec
import pytest

from meshwright.workload.convention_words import AMOUNTS, LISTS, SWITCHES, TYPES, clauses_of, named_facts
from meshwright.workload.conventions import DESCRIBED, ENGINE, Conventions, conventions_of, engine
from meshwright.workload.elements import HALF_BYTES, SINGLE_BYTES
from meshwright.workload.recomputed import MODULES


def test_every_field_has_its_words():
    assert {*AMOUNTS, *LISTS, *SWITCHES, *TYPES} == set(Conventions.__struct_fields__)


@pytest.mark.parametrize("stack", sorted(DESCRIBED))
def test_each_fact_in_which_a_stack_differs_from_most_is_told(stack):
    found = named_facts(conventions_of(stack))

    told = [name for name, value in found.items() if clauses_of({name: value})]
    assert set(found) - set(told) <= {"scattered_bytes", "gate_bytes"}  # 0 there: as another field says


def test_our_own_engines_facts_are_those_of_conventions_and_follow_the_precision():
    single, half = (clauses_of(named_facts(c, types=True)) for c in (ENGINE, engine("bf16")))

    assert any(text.startswith("weights that are gathered, gradients that travel") for text in single)
    assert all(text.endswith(": float32") for text in single if text.startswith(tuple(TYPES.values())[:4]))
    assert "in a pipeline ZeRO 2 and 3 send in every micro-batch" in single
    assert any("what products return" in text and text.endswith(": bfloat16") for text in half)


def test_words_change_with_the_value():
    changed = msgspec.structs.replace(ENGINE, reshards=0, keys_ring=1, weight_bytes=HALF_BYTES, modules_again=0b10)

    told = clauses_of(named_facts(changed, types=True))

    assert not any("every micro-batch" in text or "cp " in text for text in told)
    assert any(TYPES["weight_bytes"] in text and text.endswith("bfloat16") for text in told)
    assert f"computed again: {MODULES['layernorm']}" in told
    assert clauses_of({"weight_bytes": SINGLE_BYTES, "bucket": 768_000_000}) == [
        "weights that are gathered: float32",
        "gradients travel in buckets of 768,000,000 parameters",
    ]
