"""The page of algorithms: complete, and its formulas are the prices of the schedules."""

import math
import re
from xml.etree import ElementTree

import pytest

from docsite.algorithms import ACCOUNTS, algorithms_page, formula, pictures
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from meshwright.collectives.pricing.network import uniform
from meshwright.collectives.pricing.price import price_schedule
from meshwright.collectives.schedules.schedule import COLLECTIVES

EVERY = [(kind, name) for kind in COLLECTIVES for name in algorithm_names(kind) if name != "hierarchical"]
SIZE, LATENCY_S, RATE = 2**20, 1e-5, 1e9


@pytest.mark.parametrize(("kind", "name"), EVERY, ids="-".join)
@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_the_time_on_the_page_is_the_price_of_the_schedule(kind, name, ranks):
    account, known = ACCOUNTS[kind][name], {"P": ranks, "log2": math.log2}
    latencies, payloads = (eval(text, {}, known) for text in (account.latencies, account.payloads))

    priced = price_schedule(
        build_schedule(kind, name, ranks), uniform(ranks, LATENCY_S, RATE), SIZE, lockstep=True
    ).time_s
    assert latencies * LATENCY_S + payloads * SIZE / RATE == pytest.approx(priced, rel=1e-9, abs=1e-15)


def test_formulas_are_written_as_the_field_writes_them():
    assert formula(ACCOUNTS["all_reduce"]["ring"]) == "2(P-1) α + 2(P-1)/P N/B"
    assert formula(ACCOUNTS["all_reduce"]["halving_doubling"]) == "2 log2 P α + 2(P-1)/P N/B"
    assert formula(ACCOUNTS["all_reduce"]["tree"]) == "2 log2 P α + (2 log2 P-1) N/B"
    assert formula(ACCOUNTS["all_to_all"]["bruck"]) == "log2 P α + log2 P/2 N/B"
    assert formula(ACCOUNTS["barrier"]["dissemination"]) == "log2 P α"
    assert formula(ACCOUNTS["copy"]["local"]) == "0"


def test_every_algorithm_has_its_line_time_source_and_picture():
    page, drawn = algorithms_page(), pictures()
    sections = re.split(r"(?m)^### ", page)[1:]

    assert len(sections) == len(drawn) == sum(len(algorithm_names(kind)) for kind in COLLECTIVES)
    for section in sections:
        assert re.search(r"Time: .*\. Source: .*\.", section)
    assert re.findall(r"\]\((algorithms/[^)]*)\)", page) == list(drawn)
    for text in drawn.values():
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    anchors = re.findall(r"\{ #([\w-]+) \}", page)
    assert len(set(anchors)) == len(sections)
