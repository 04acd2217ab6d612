"""A network of one hidden layer over one flat vector of parameters, in float64."""

import numpy as np

from .digits import Floats, Labels, uniform
from .settings import BATCH, CLASSES, HIDDEN, PARAMETERS, PIXELS

MOMENTUM = 0.9


def initial_parameters(seed: int) -> Floats:
    """He-uniform weights and zero biases."""
    draws = 2.0 * uniform((seed, 0, 0), PARAMETERS) - 1.0
    for part, scale in zip(_layers(draws), ((6 / PIXELS) ** 0.5, 0.0, (6 / HIDDEN) ** 0.5, 0.0), strict=True):
        np.multiply(part, scale, out=part)
    return draws


def learning_rate(step: int) -> float:
    """Warms up over 50 steps, then falls slowly; depends on the step only, not on the number of workers."""
    return 0.05 * min(1.0, (step + 1) / 50) / (1.0 + step / 3000)


def loss_and_gradient(parameters: Floats, pixels: Floats, labels: Labels, out: Floats) -> tuple[float, int]:
    """Write the sum of the records' gradients to `out`; returns (sum of losses, number of right records)."""
    weights, bias, out_weights, out_bias = _layers(parameters)
    to_weights, to_bias, to_out_weights, to_out_bias = _layers(out)
    hidden = np.maximum(pixels @ weights + bias, 0.0)
    scores = hidden @ out_weights + out_bias
    rows = np.arange(labels.size)
    right = int((scores.argmax(axis=1) == labels).sum())
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    totals = exponentials.sum(axis=1, keepdims=True)
    loss = float((np.log(totals[:, 0]) - scores[rows, labels]).sum())
    error = exponentials / totals
    error[rows, labels] -= 1.0
    to_out_weights[...] = hidden.T @ error
    to_out_bias[...] = error.sum(axis=0)
    hidden_error = (error @ out_weights.T) * (hidden > 0.0)
    to_weights[...] = pixels.T @ hidden_error
    to_bias[...] = hidden_error.sum(axis=0)
    return loss, right


def update(parameters: Floats, velocity: Floats, gradient_sum: Floats, step: int) -> None:
    """One step of SGD with momentum, in place, from the sum of the batch's gradients."""
    velocity *= MOMENTUM
    velocity -= (learning_rate(step) / BATCH) * gradient_sum
    parameters += velocity


def accuracy(parameters: Floats, pixels: Floats, labels: Labels) -> float:
    """The part of the records that the network classifies correctly, 0..1."""
    weights, bias, out_weights, out_bias = _layers(parameters)
    scores = np.maximum(pixels @ weights + bias, 0.0) @ out_weights + out_bias
    return float((scores.argmax(axis=1) == labels).mean())


def _layers(flat: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Views: hidden weights and bias, output weights and bias."""
    one = PIXELS * HIDDEN
    two = one + HIDDEN
    three = two + HIDDEN * CLASSES
    hidden, output = flat[:one].reshape(PIXELS, HIDDEN), flat[two:three].reshape(HIDDEN, CLASSES)
    return hidden, flat[one:two], output, flat[three:]
