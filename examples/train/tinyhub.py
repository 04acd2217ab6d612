"""Stand-ins for what a script imports from Hugging Face's transformers, small and without a network."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    num_labels: int = 4
    hidden_size: int = 32
    vocab_size: int = 128
    dropout: float = 0.1


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


class ModelForSequenceClassification(nn.Module):
    """Attention over the characters of a line; called with the fields of a batch, as those models are."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.attention = nn.MultiheadAttention(config.hidden_size, 2, config.dropout, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, attention_mask, labels=None) -> Output:
        x = self.embeddings(input_ids)
        x = x + self.attention(x, x, x, key_padding_mask=attention_mask == 0, need_weights=False)[0]
        weights = attention_mask.unsqueeze(-1).to(x.dtype)
        logits = self.classifier(self.dropout((x * weights).sum(1) / weights.sum(1)))
        loss = None if labels is None else nn.functional.cross_entropy(logits.float(), labels)
        return Output(loss, logits)


class DataCollatorWithPadding:
    """A batch as long as its longest line."""

    def __call__(self, records):
        longest = max(len(record["input_ids"]) for record in records)
        ids = torch.zeros(len(records), longest, dtype=torch.int64)
        mask = torch.zeros(len(records), longest, dtype=torch.int64)
        for row, record in enumerate(records):
            ids[row, : len(record["input_ids"])] = torch.tensor(record["input_ids"])
            mask[row, : len(record["input_ids"])] = 1
        labels = torch.tensor([record["labels"] for record in records])
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps):
    def factor(step):
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        return max(0.0, (num_training_steps - step) / (num_training_steps - num_warmup_steps))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def macro_f1(predictions: torch.Tensor, labels: torch.Tensor) -> float:
    """The mean of the labels' F1. It needs all predictions at once: it is no mean over parts of them."""
    found = []
    for label in labels.unique().tolist():
        hits = ((predictions == label) & (labels == label)).sum().item()
        found.append(2 * hits / max(1, (predictions == label).sum().item() + (labels == label).sum().item()))
    return sum(found) / len(found)
