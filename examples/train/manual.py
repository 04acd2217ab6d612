"""Texts that need no download: the topics of Python's own help()."""

import random
from pydoc_data.topics import topics

import torch
from torch.utils.data import Dataset


class Windows(Dataset):
    """Every place in the text is a record: `length` characters, and the same ones shifted by one."""

    def __init__(self, records: int, length: int) -> None:
        whole = "\n".join(topics[name] for name in sorted(topics))
        text = "".join(letter for letter in whole if letter.isascii())[: records + length + 1]
        self.letters = sorted(set(text))
        place = {letter: number for number, letter in enumerate(self.letters)}
        self.codes = torch.tensor([place[letter] for letter in text])
        self.length = length

    def __len__(self) -> int:
        return len(self.codes) - self.length - 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = index + self.length
        return self.codes[index:end], self.codes[index + 1 : end + 1]


class Sentences(Dataset):
    """Lines of the manual, of different lengths; the label is the topic that a line is from."""

    def __init__(self, labels: int, *, train: bool) -> None:
        longest = sorted(topics, key=lambda name: (-len(topics[name]), name))[:labels]
        lines = [
            (line.strip(), label)
            for label, name in enumerate(longest)
            for line in topics[name].splitlines()
            if len(line.strip()) > 20
        ]
        random.Random(0).shuffle(lines)
        held_out = len(lines) // 5
        self.lines = lines[held_out:] if train else lines[:held_out]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, object]:
        line, label = self.lines[index]
        return {"input_ids": [min(ord(letter), 127) for letter in line[:64]], "labels": label}
