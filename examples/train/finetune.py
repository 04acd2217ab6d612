"""A loop as Hugging Face's examples have it: python -m pliant.train run --workers 2 finetune.py"""

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

import pliant.train as pt


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
    job = pt.init(logical_workers=0 if args.plain else 4)
    config = Config(dropout=0.0 if args.plain else 0.1)
    train = Sentences(config.num_labels, train=True)
    held_out = Sentences(config.num_labels, train=False)
    collator = DataCollatorWithPadding()
    loader = job.data(
        train, global_batch=32, max_micro_batch=8, shuffle=not args.plain, collate=collator, drop_last=True
    )

    def score(model, batch):
        predictions = model(**batch).logits.argmax(-1)
        return {"predictions": job.gather(predictions), "labels": job.gather(batch["labels"])}

    job.evaluation(held_out, score, metric=lambda all: {"f1": macro_f1(**all)}, collate=collator, batch=64)
    model = ModelForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    total = args.epochs * len(loader)
    scheduler = get_linear_schedule_with_warmup(optimizer, total // 10, total)
    model, optimizer, scheduler = job.prepare(
        model, optimizer, scheduler, max_grad_norm=1.0, precision="fp16" if args.fp16 else None
    )

    state = job.state(best=0.0, bad=0)
    for epoch in job.epochs(args.epochs):
        model.train()
        for batch in loader:
            with job.step(batch) as step:
                with job.autocast():
                    loss = model(**batch).loss
                step.backward(loss)
            if step.applied and job.is_main:
                print(job.applied, job.loss, file=log)
        f1 = job.evaluations[job.applied]["f1"]
        job.print(f"epoch {epoch + 1}: F1 {f1:.3f}")
        state.best, state.bad = (f1, 0) if f1 > state.best else (state.best, state.bad + 1)
        if state.bad == args.patience:
            job.stop()
    if job.is_main:
        torch.save(model.state_dict(), args.out)


if __name__ == "__main__":
    main()
