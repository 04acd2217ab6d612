"""A small convolutional network for MNIST, as a model file for `elasticdl`.

No dropout and no batch normalization: what they do depends on how a batch is divided among the workers, and
this example shows a result that does not depend on that.
"""

import numpy as np
from torch import nn, optim

from pliant.train.elasticdl import numeric_column

model = nn.Sequential(
    nn.Conv2d(1, 8, kernel_size=3, stride=2),
    nn.Tanh(),
    nn.Conv2d(8, 16, kernel_size=3, stride=2),
    nn.Tanh(),
    nn.Flatten(),
    nn.Linear(16 * 6 * 6, 10),
)


def feature_columns():
    return [numeric_column("image", shape=(28, 28), dtype="uint8")]


def label_columns():
    return [numeric_column("label", dtype="uint8")]


def input_fn(records):
    images = np.stack([record["image"] for record in records]).astype(np.float32) / 255
    labels = np.array([record["label"] for record in records], dtype=np.int64)
    return {"image": images[:, None]}, labels


def loss(output, labels):
    return nn.functional.cross_entropy(output, labels)


def optimizer(parameters, lr=0.05):
    return optim.SGD(parameters, lr=lr)


def eval_metrics_fn():
    return {"accuracy": lambda output, labels: (output.argmax(1) == labels).float()}
