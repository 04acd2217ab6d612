"""A small transformer that learns to write like Python's own manual, elastic.

The text ships with Python (the topics of `help()`), so nothing is downloaded.

    python -m pliant.train run --workers 2 examples/train_text.py --steps 200
"""

import argparse

import torch
from torch import nn

import pliant.train as pt

LENGTH = 48  # characters that the model sees


class Windows:
    """Every place in the text is a record: LENGTH characters, and the same ones shifted by one."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        place = {letter: i for i, letter in enumerate(self.letters)}
        self._codes = torch.tensor([place[letter] for letter in text])

    def __len__(self) -> int:
        return len(self._codes) - LENGTH - 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._codes[index : index + LENGTH], self._codes[index + 1 : index + LENGTH + 1]


class Writer(nn.Module):
    def __init__(self, letters: int, width: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.letters(codes) + self.places.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return self.out(x)


def text(limit: int) -> str:
    from pydoc_data.topics import topics

    whole = "\n".join(topics[name] for name in sorted(topics))
    return "".join(letter for letter in whole if letter.isascii())[:limit]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300, help="about so many, in one epoch")
    given = parser.parse_args()
    torch.manual_seed(0)
    dataset = Windows(text(given.steps * 32 + LENGTH + 1))
    model = Writer(len(dataset.letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=given.steps + 2)

    job = pt.init(checkpoint_every=100)
    model, optimizer, schedule = job.prepare(model, optimizer, schedule, max_grad_norm=1.0)
    data = job.data(dataset, global_batch=32, max_micro_batch=16)
    for _epoch in job.epochs(1):
        for batch in data:
            with job.step(batch) as step:
                guess = model(batch.x)
                step.backward(nn.functional.cross_entropy(guess.flatten(0, 1), batch.y.flatten()))
            if job.rank == 0 and job.applied % 20 == 0 and batch.part.last:
                print(f"step {job.applied}: loss {job.loss:.3f}, {job.size} workers", flush=True)


if __name__ == "__main__":
    main()
