"""A loop as Hugging Face's examples have it: padding, accumulation, warm-up, fp16, early stopping."""

import argparse

import torch
from manual import Sentences
from tinyhub import (
    Config,
    DataCollatorWithPadding,
    ModelForSequenceClassification,
    get_linear_schedule_with_warmup,
    macro_f1,
)
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--plain", action="store_true", help="in order; no dropout")
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--out", default="classifier.pt")
    parser.add_argument("--log", default="losses.txt")
    args = parser.parse_args()
    log = open(args.log, "a", buffering=1)  # noqa: SIM115

    torch.manual_seed(0)
    config = Config(dropout=0.0 if args.plain else 0.1)
    train = Sentences(config.num_labels, train=True)
    held_out = Sentences(config.num_labels, train=False)
    collator = DataCollatorWithPadding()
    loader = DataLoader(train, batch_size=8, shuffle=not args.plain, collate_fn=collator, drop_last=True)
    validation = DataLoader(held_out, batch_size=64, collate_fn=collator)
    accumulation = 4
    model = ModelForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    total = args.epochs * (len(loader) // accumulation)
    scheduler = get_linear_schedule_with_warmup(optimizer, total // 10, total)
    scaler = torch.amp.GradScaler("cpu", enabled=args.fp16)

    best, bad, step, sum_of_losses = 0.0, 0, 0, 0.0
    for epoch in range(args.epochs):
        model.train()
        for number, batch in enumerate(loader, 1):
            with torch.autocast("cpu", torch.float16, enabled=args.fp16):
                loss = model(**batch).loss / accumulation
            scaler.scale(loss).backward()
            sum_of_losses += loss.item()
            if number % accumulation == 0:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                optimizer.zero_grad()
                step += 1
                print(step, sum_of_losses, file=log)
                sum_of_losses = 0.0
        optimizer.zero_grad()
        sum_of_losses = 0.0
        model.eval()
        predictions, labels = [], []
        with torch.no_grad():
            for batch in validation:
                predictions.append(model(**batch).logits.argmax(-1))
                labels.append(batch["labels"])
        f1 = macro_f1(torch.cat(predictions), torch.cat(labels))
        print(f"epoch {epoch + 1}: F1 {f1:.3f}")
        best, bad = (f1, 0) if f1 > best else (best, bad + 1)
        if bad == args.patience:
            break
    torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
