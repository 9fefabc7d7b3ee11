"""Run the cases of `cases.py` in SimGrid and print when each rank of each case was done, in seconds.

For the Python that SimGrid's package belongs to: `python3 -m testkit.simgrid_cases | /usr/bin/python3
tests/external/simgrid/judge.py > tests/external/simgrid/reference.json` (Debian: python3-simgrid 3.32). The plain flow
model: no TCP window, no cross traffic, bandwidth and latency factors 1.
"""

import json
import os
import sys
import tempfile
from xml.sax.saxutils import quoteattr

from simgrid import Actor, Engine, Mailbox, this_actor

FLAGS = [
    "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:1", "--cfg=network/weight-S:0", "--cfg=network/crosstraffic:0",
    "--cfg=maxmin/precision:1e-9", "--cfg=surf/precision:1e-9", "--log=root.thres:critical",
]  # fmt: skip


def platform(case):
    """Return SimGrid's platform file: every link, every route."""
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">']
    lines += ['<platform version="4.1">', '<zone id="world" routing="Full">']
    lines += [f'<host id="rank{r}" speed="1Gf"/>' for r in range(case["ranks"])]
    for number, link in enumerate(case["links"]):
        lines.append(f'<link id="l{number}" bandwidth={quoteattr(repr(link) + "Bps")} latency="0s"/>')
    for route in case["routes"]:
        ends = f'src="rank{route["src"]}" dst="rank{route["dst"]}"'
        links = "".join(f'<link_ctn id="l{link}"/>' for link in route["links"])
        lines.append(f'<route {ends} symmetrical="NO">{links}</route>')
    return "\n".join([*lines, "</zone>", "</platform>"])


def send(tag, size_bytes, latency_s):
    """Meet the receiver, wait for the latency, send."""
    Mailbox.by_name(f"{tag} meets").put("", 0)
    this_actor.sleep_for(latency_s)
    Mailbox.by_name(tag).put("", round(size_bytes))


def receive(tag):
    """Meet the sender, receive."""
    Mailbox.by_name(f"{tag} meets").get()
    Mailbox.by_name(tag).get()


def work(rank, stages, done):
    """Be one rank: start all sends and receives of a stage, and go on when all of them are done."""
    host = this_actor.get_host()
    for stage in stages:
        started = [Actor.create("send", host, send, *message) for message in stage["sends"]]
        started += [Actor.create("receive", host, receive, tag) for tag in stage["receives"]]
        for actor in started:
            actor.join()
    done[rank] = Engine.clock


def run(case):
    """Return when each rank of a case is done."""
    with tempfile.NamedTemporaryFile("w", suffix=".xml", delete=False) as file:
        file.write(platform(case))
    engine = Engine(["judge", *FLAGS])
    engine.load_platform(file.name)
    os.unlink(file.name)
    done = {}
    for rank, stages in enumerate(case["programs"]):
        Actor.create(f"rank{rank}", engine.host_by_name(f"rank{rank}"), work, rank, stages, done)
    engine.run()
    return [done[rank] for rank in range(case["ranks"])]


def main():
    """Run each case in a process of its own: SimGrid has one engine a process."""
    if len(sys.argv) > 1:
        with open(sys.argv[1]) as file:
            sys.stdout.write(json.dumps(run(json.load(file))))
        return
    results = {}
    for name, case in json.load(sys.stdin).items():
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump(case, file)
        with os.popen(f"{sys.executable} {__file__} {file.name}") as output:
            results[name] = json.loads(output.read().strip().splitlines()[-1])
        os.unlink(file.name)
    sys.stdout.write(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
