"""Read what was published the way a front end shows it, and take it apart again by rank."""

import json

from spmd_kernel.core.content import dumps
from spmd_kernel.core.model import Message
from spmd_kernel.core.outputs import CellOutputs, GroupedOutputs, OutputPolicy, parse_label


def message(msg_type, **content):
    return Message({"msg_type": msg_type}, {}, {}, dumps(content))


def stream(text, name="stdout"):
    return message("stream", name=name, text=text)


def display(data, metadata=None, **transient):
    if isinstance(data, str):
        data = {"text/plain": data}
    return message("display_data", data=data, metadata=metadata or {}, transient=transient)


def result(data):
    if isinstance(data, str):
        data = {"text/plain": data}
    return message("execute_result", data=data, metadata={}, execution_count=3)


def error(evalue, ename="ValueError"):
    return message("error", ename=ename, evalue=evalue, traceback=[f"{'-' * 9}\n{ename}", evalue])


class Cell:
    """A cell whose clock is moved by hand; ticks happen at their deadlines."""

    def __init__(self, size=4, ranks=None, **options):
        self.ranks = tuple(ranks if ranks is not None else range(size))
        self.outputs = CellOutputs(self.ranks, size, **options)
        if options.get("policy", OutputPolicy()).mode == "grouped":
            self.outputs = GroupedOutputs(self.outputs)
        self.size = size
        self.at = 0.0
        self.published = []
        self.times = []

    def _add(self, published):
        self.published += published
        self.times += [self.at] * len(published)

    def wait(self, seconds):
        """Let time pass."""
        until = self.at + seconds
        while (due := self.outputs.deadline()) is not None and due <= until:
            self.at = max(self.at, due)
            self._add(self.outputs.tick(self.at))
            again = self.outputs.deadline()
            sliced = self.outputs._fold._goes_on is not None
            assert again is None or again > self.at or sliced, "a tick left what was due"
        self.at = until

    def feed(self, rank, what, name="stdout"):
        what = stream(what, name) if isinstance(what, str) else what
        self._add(self.outputs.feed(rank, what, self.at))

    def feed_all(self, what, name="stdout"):
        for rank in self.ranks:
            self.feed(rank, what, name)

    def cut(self, rank):
        self._add(self.outputs.cut(rank, self.at))

    def finish(self, *ranks):
        for rank in ranks or self.ranks:
            self._add(self.outputs.finish(rank, self.at))

    def close(self):
        self._add(self.outputs.close(self.at))
        assert self.outputs.deadline() is None

    # ------------------------------------------------------------ what it looks like

    @property
    def contents(self):
        return [(p.msg_type, json.loads(p.content)) for p in self.published]

    def of(self, msg_type):
        return [content for kind, content in self.contents if kind == msg_type]

    @property
    def text(self):
        """All text of streams, as one."""
        return "".join(c["text"] for c in self.of("stream"))

    def shown(self):
        """Outputs as a front end keeps them: [(kind, content)], streams coalesced, slots updated."""
        out, by_id = [], {}
        for kind, content in self.contents:
            if kind == "stream" and out and out[-1][0] == content["name"]:
                out[-1][1]["text"] += content["text"]
            elif kind == "stream":
                out.append((content["name"], {"text": content["text"]}))
            elif kind == "clear_output":
                out.clear()
                by_id.clear()
            elif kind == "update_display_data":
                shown = by_id.get(content["transient"]["display_id"])
                if shown is not None:
                    shown["data"] = content["data"]
            else:
                if (display_id := content.get("transient", {}).get("display_id")) is not None:
                    by_id[display_id] = content
                out.append((kind, content))
        return out

    def by_rank(self):
        """For each rank what it said, in order: ("stdout", line) or (kind, payload)."""
        said = {rank: [] for rank in self.ranks}
        for kind, content in self.shown():
            if kind in ("stdout", "stderr"):
                lines = content["text"].split("\n")
                lines = lines if lines[-1] else lines[:-1]
                for line in lines:
                    self._say(said, kind, *parse_label(line))
            elif kind == "error":
                first, *others = content["traceback"]
                ranks, first = parse_label(first)
                self._say(said, kind, ranks, (content["evalue"], first, *others))
            elif not content["metadata"]["spmd"].keys() & {"role", "live"}:
                ranks = tuple(content["metadata"]["spmd"]["ranks"])
                data = dict(content["data"])
                if ranks != self.ranks and data.keys() == {"text/plain"}:
                    pairs = [parse_label(line) for line in data["text/plain"].split("\n")]
                    assert {named for named, _ in pairs} == {ranks}
                    data["text/plain"] = "\n".join(rest for _, rest in pairs)
                self._say(said, kind, ranks, json.dumps(data))
        return said

    def _say(self, said, kind, ranks, what):
        for rank in self.ranks if ranks is None else ranks:
            said[rank].append((kind, what))
