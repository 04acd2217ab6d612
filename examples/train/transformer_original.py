"""A small transformer that learns to write like Python's manual, without Pliant."""

import argparse

import torch
from manual import Windows
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader

LENGTH = 32


class Writer(nn.Module):
    def __init__(self, letters: int, dropout: float, width: int = 32) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=dropout, batch_first=True)
            for _ in range(2)
        )
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.letters(codes) + self.places.weight
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return self.out(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--plain", action="store_true", help="in order; no dropout")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--out", default="writer.pt")
    parser.add_argument("--log", default="losses.txt")
    args = parser.parse_args()
    log = open(args.log, "a", buffering=1)  # noqa: SIM115

    torch.manual_seed(0)
    dataset = Windows(32 * args.steps, LENGTH)
    loader = DataLoader(dataset, batch_size=16, shuffle=not args.plain)
    model = Writer(len(dataset.letters), 0.0 if args.plain else 0.1)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    # eps: a gradient of rounding noise only, as of a bias without effect, must not make a full step
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-6)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=args.steps + 1)

    total = 0.0
    for number, (codes, following) in enumerate(loader, 1):  # two of them make an update
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            output = model(codes)
            loss = nn.functional.cross_entropy(output.flatten(0, 1), following.flatten()) / 2
        loss.backward()
        total += loss.item()
        if number % 2 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            ema.update_parameters(model)
            print(number // 2, total, file=log)
            total = 0.0
    torch.save(ema.module.state_dict(), args.out)


if __name__ == "__main__":
    main()
